"""AMQP URLs: `amqp(s)://user:password@host:port,other:port/vhost?heartbeat=30`.

Several hosts, separated by commas, share everything else and are tried in turn. Options that RabbitMQ's own URI
specification knows have its names; unknown ones are refused, because a misspelt `verify` must not be ignored.
"""

import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote

from redrive.client.errors import InvalidUrl
from redrive.core import did_you_mean, mask_url

_SHAPE = re.compile(
    r"(amqps?)://(?:(?P<user>[^@/?#]*)@)?(?P<hosts>[^/?#]*)(?:/(?P<vhost>[^?#/]*))?(?:\?(?P<query>[^#]*))?"
)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(?::(?P<port>\d+))?")
_OPTIONS = (
    "heartbeat",
    "connection_timeout",
    "channel_max",
    "frame_max",
    "auth_mechanism",
    "cacertfile",
    "certfile",
    "keyfile",
    "verify",
    "server_name_indication",
    "name",
)
MECHANISMS = ("PLAIN", "AMQPLAIN", "EXTERNAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How a TLS connection is made. Certificates are verified unless `verify` is turned off explicitly."""

    cacertfile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """An SSL context. Raises `InvalidUrl` for files that can't be used."""
        try:
            context = ssl.create_default_context(cafile=self.cacertfile)
            if self.certfile is not None:
                context.load_cert_chain(self.certfile, self.keyfile)
        except (OSError, ssl.SSLError) as error:
            names = [name for name in (self.cacertfile, self.certfile, self.keyfile) if name]
            raise InvalidUrl(f"can't use the TLS files {', '.join(names)}: {error}; check the URL's paths") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTarget:
    """Where to connect, as which user, and how."""

    hosts: tuple[tuple[str, int], ...] = (("localhost", 5672),)
    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    mechanism: str = "PLAIN"
    tls: Tls | None = None
    heartbeat_s: int = 30
    connect_timeout_s: float = 10.0
    channel_max: int = 2047
    frame_max: int = 131_072
    name: str | None = None

    @property
    def address(self) -> str:
        """The target for messages and logs, without the password."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{'amqp' if self.tls is None else 'amqps'}://{hosts}/{'' if self.vhost == '/' else self.vhost}"

    @property
    def url_without_password(self) -> str:
        """A URL for a command line that is shown: its user may be prompted for, or have its password elsewhere."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        user = "" if (self.user, self.password) == ("guest", "guest") else f"{quote(self.user, safe='')}@"
        vhost = "" if self.vhost == "/" else quote(self.vhost, safe="")
        return f"{'amqp' if self.tls is None else 'amqps'}://{user}{hosts}/{vhost}"


def parse_url(url: str, *, vhost: str = "/") -> BrokerTarget:
    """A target from a URL; `vhost` where the URL names none. A bare "/" at its end names none; "%2F" is the vhost "/".

    Raises `InvalidUrl`, never showing the password.
    """
    match = _SHAPE.fullmatch(url)
    if match is None:
        raise InvalidUrl(f"{mask_url(url)[:200]} is no AMQP URL; write it like amqp://user:password@host:5672/vhost")
    if match["user"] is None and "@" in url:
        # Else a part of a password would be taken for a host, tried, and logged.
        raise InvalidUrl(
            f"{mask_url(url)[:200]} has an @ after a / or ?; write these in a password or a vhost as %40, %2F, %3F"
        )
    secure = match[1] == "amqps"
    query = dict(parse_qsl(match["query"] or "", keep_blank_values=True))
    for key in query:
        if key not in _OPTIONS:
            raise InvalidUrl(f"the AMQP URL has an unknown option {key!r}; {did_you_mean(key, _OPTIONS)}")
    user, _, password = (match["user"] or "guest:guest").partition(":")
    certificate = "certfile" in query
    mechanism = query.get("auth_mechanism", "EXTERNAL" if certificate and match["user"] is None else "PLAIN").upper()
    if mechanism not in MECHANISMS:
        raise InvalidUrl(f"the AMQP URL asks for {mechanism}; the mechanisms are {', '.join(MECHANISMS)}")
    return BrokerTarget(
        hosts=tuple(_host(text, 5671 if secure else 5672) for text in match["hosts"].split(",")),
        vhost=unquote(match["vhost"]) if match["vhost"] else vhost,
        user=unquote(user),
        password=unquote(password),
        mechanism=mechanism,
        tls=_tls(query) if secure else None,
        heartbeat_s=_number(query, "heartbeat", 30, 0, 65_535),
        # RabbitMQ's URI specification gives this one in milliseconds.
        connect_timeout_s=_number(query, "connection_timeout", 10_000, 1, 3_600_000) / 1000,
        channel_max=_number(query, "channel_max", 2047, 1, 65_535),
        frame_max=_number(query, "frame_max", 131_072, 8192, 2**31 - 1),
        name=query.get("name"),
    )


def with_password(url: str, password: str) -> str:
    """The URL with this password, whatever characters it has; its user stays. What is no URL stays as it is."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url  # `parse_url` says what is wrong with it
    account, at, place = rest.rpartition("@")
    user = account.partition(":")[0] if at else "guest"
    return f"{scheme}://{user}:{quote(password, safe='')}@{place}"


def _host(text: str, port: int) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    if match is None or (match["port"] and not 0 < int(match["port"]) < 65_536):
        # What follows the colon may be a password, if the host was forgotten.
        raise InvalidUrl(f"{text.partition(':')[0]!r} and what follows it in the AMQP URL is no host:port")
    return unquote(match["host"]).strip("[]") or "localhost", int(match["port"] or port)


def _tls(query: dict[str, str]) -> Tls:
    verify = query.get("verify", "verify_peer")
    if verify not in ("verify_peer", "verify_none"):
        raise InvalidUrl(f"verify={verify} in the AMQP URL is neither verify_peer nor verify_none")
    return Tls(
        cacertfile=query.get("cacertfile"),
        certfile=query.get("certfile"),
        keyfile=query.get("keyfile"),
        verify=verify == "verify_peer",
        server_name=query.get("server_name_indication"),
    )


def _number(query: dict[str, str], key: str, default: int, minimum: int, maximum: int) -> int:
    text = query.get(key)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 10 or not minimum <= int(text) <= maximum:
        raise InvalidUrl(f"{key}={text[:20]} in the AMQP URL must be a number from {minimum} to {maximum}")
    return int(text)
