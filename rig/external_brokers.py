"""Brokers that somebody else runs, named in REDRIVE_TEST_URLS: on macOS, or as services of a CI.

    REDRIVE_TEST_URLS="amqp://guest:guest@localhost:5672/  amqp://guest:guest@localhost:5673/|http://localhost:15673"

Separated by commas or spaces. The management API is looked for on port 15672 of the same host (15671 with amqps) unless
its address follows after a `|`. Which version a broker has, it says itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, unquote, urlsplit

from rig.errors import ManagementRefused, TestUrlsRefused
from rig.management import Management
from rig.versions import label_of, profile_of

VARIABLE = "REDRIVE_TEST_URLS"
WRITE = "write amqp://user:password@host:port/, and |http://host:port after it if its management API is elsewhere"
SCHEMES = {"amqp": ("http", 5672, 15672), "amqps": ("https", 5671, 15671)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a named broker is and how to log in."""

    scheme: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    management_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalBroker:
    """A Broker we did not start and must not stop."""

    address: Address
    version: str
    management: Management

    @property
    def label(self) -> str:
        return label_of(self.version)

    @property
    def profile(self) -> str:
        return profile_of(self.label)

    @property
    def user(self) -> str:
        return self.address.user

    @property
    def management_url(self) -> str:
        return self.address.management_url

    def amqp_url(self, vhost: str = "/") -> str:
        user, password = quote(self.address.user, safe=""), quote(self.address.password, safe="")
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return f"{self.address.scheme}://{user}:{password}@{host}:{self.address.port}/{quote(vhost, safe='')}"


def parse_test_urls(text: str) -> list[Address]:
    """The brokers named. Raises TestUrlsRefused for what is not an address; passwords are not repeated in it."""
    return [_parse_entry(entry) for entry in re.split(r"[,\s]+", text) if entry]


def connect(address: Address) -> ExternalBroker:
    """Ask a named broker which version it has. Raises TestUrlsRefused when it does not tell."""
    management = Management(address.management_url, user=address.user, password=address.password)
    entry = f"{address.scheme}://{address.host}:{address.port}"
    try:
        version = str(management.get("overview")["rabbitmq_version"])
    except ManagementRefused as refused:
        reason = f"has a management API at {address.management_url} that answers {refused.status}"
        raise TestUrlsRefused(entry=entry, reason=reason, hint="name a user who is an administrator") from None
    except OSError as error:
        reason = f"has no management API at {address.management_url} ({error})"
        hint = "start it with rabbitmq_management enabled, or give that API's address after a |"
        raise TestUrlsRefused(entry=entry, reason=reason, hint=hint) from None
    return ExternalBroker(address=address, version=version, management=management)


def _parse_entry(entry: str) -> Address:
    amqp_text, _, management_text = entry.partition("|")
    shown = re.sub(r"//[^/@]*@", "//…@", entry)
    try:
        amqp = urlsplit(amqp_text)
        management = urlsplit(management_text)
        port, management_port = amqp.port, management.port
    except ValueError as error:
        raise TestUrlsRefused(entry=shown, reason=f"is no URL ({error})", hint=WRITE) from None
    if amqp.scheme not in SCHEMES or not amqp.hostname:
        raise TestUrlsRefused(entry=shown, reason="is no amqp:// or amqps:// URL", hint=WRITE)
    web_scheme, amqp_default, management_default = SCHEMES[amqp.scheme]
    host = f"[{amqp.hostname}]" if ":" in amqp.hostname else amqp.hostname
    if not management_text:
        management_url = f"{web_scheme}://{host}:{management_default}"
    elif management.scheme in ("http", "https") and management.hostname:
        management_url = _without_user(management, management_port)
    else:
        raise TestUrlsRefused(entry=shown, reason="has no http:// or https:// URL after the |", hint=WRITE)
    return Address(
        scheme=amqp.scheme,
        host=amqp.hostname,
        port=amqp_default if port is None else port,
        user="guest" if amqp.username is None else unquote(amqp.username),
        password="guest" if amqp.password is None else unquote(amqp.password),
        management_url=management_url,
    )


def _without_user(url: SplitResult, port: int | None) -> str:
    host = f"[{url.hostname}]" if ":" in str(url.hostname) else str(url.hostname)
    return f"{url.scheme}://{host}" + ("" if port is None else f":{port}") + url.path.rstrip("/")
