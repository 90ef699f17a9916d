"""Where messages are pushed to, and how; checked when it is made. A `repr` shows no secret."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from redrive.runtime.push.errors import InvalidPush
from redrive.runtime.push.request_headers import IDEMPOTENCY_KEY

CONNECT_S_MAX = 5.0
TOTAL_S_MAX = 30.0
SECRET_BYTES_MIN = 16
_MAKE_ONE = "make one with: openssl rand -hex 32"

_NAME = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,4094}[\x21-\x7e])?")
_OURS = frozenset({"content-length", "content-type", "content-encoding", "transfer-encoding", "host", "connection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget:
    """A service's endpoint. `secrets` sign the requests, `headers` are added to each of them.

    Raises `InvalidPush`, which never repeats a secret.
    """

    url: str = field(repr=False)
    connect_s_max: float = CONNECT_S_MAX
    total_s_max: float = TOTAL_S_MAX
    concurrency: int = 50
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or any(ord(char) <= 0x20 or ord(char) == 0x7F for char in self.url):
            raise InvalidPush(
                "--to is no address a message can be posted to; write it like http://localhost:3000/orders"
            )
        if self.connect_s_max <= 0 or self.total_s_max <= 0:
            raise InvalidPush("a timeout must leave the service some time")
        if self.concurrency < 1:
            raise InvalidPush("concurrency must be at least 1")
        for secret in self.secrets:
            if len(secret) < SECRET_BYTES_MIN:
                raise InvalidPush(f"the secret is shorter than {SECRET_BYTES_MIN} bytes; {_MAKE_ONE}")
        for name, value in self.headers:
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise InvalidPush(
                    f"the header {name[:100]!r} is none that HTTP can carry; write it like 'x-team: orders'"
                )
            if name.lower() in _OURS or name.lower() == IDEMPOTENCY_KEY or name.lower().startswith("x-redrive-"):
                raise InvalidPush(f"the header {name} is set from the message and can't be given")

    @property
    def shown(self) -> str:
        """The address without user, password and query, for people and logs."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, "", ""))


def read_secrets(text: str, *, source: str) -> tuple[bytes, ...]:
    """The secrets in a file or variable, one a line; the first is the one to keep while a secret is being changed.

    Raises `InvalidPush`, which names the source, if there is none or one is too short: an operator who names a secret
    wants the requests signed.
    """
    secrets = tuple(line.strip().encode() for line in text.splitlines() if line.strip())
    if not secrets:
        raise InvalidPush(f"{source} is empty, and requests would go unsigned; {_MAKE_ONE}")
    for number, secret in enumerate(secrets, start=1):
        if len(secret) < SECRET_BYTES_MIN:
            which = "the secret" if len(secrets) == 1 else f"secret {number}"
            raise InvalidPush(f"{source}: {which} is shorter than {SECRET_BYTES_MIN} bytes; {_MAKE_ONE}")
    return secrets
