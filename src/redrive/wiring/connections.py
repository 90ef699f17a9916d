"""From a setting to a broker: the URL read, and what a broker refuses told so that an operator knows what to change.

The client's errors have the broker's own words. Here they get what the client can't know: where the URL came from, and
which command says what rights a user needs.
"""

import re
import shlex
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from redrive.client import (
    AccessRefused,
    AuthenticationFailed,
    BrokerTarget,
    Client,
    InvalidUrl,
    ReconnectBackoff,
    parse_url,
)
from redrive.core import SILENT, Observer
from redrive.deploy import ApplyFailed
from redrive.management import TIMEOUT_S, Management, guess_endpoint, parse_management_url
from redrive.wiring.settings import Setting

_REASON = re.compile(r"(?P<where>.*?): (?P<code>403|530) (?P<text>.*)", re.DOTALL)
_RIGHT = re.compile(r"\b(configure|write|read) access to ")


class NotLetIn(AuthenticationFailed):
    """The broker does not accept the user, or not for the vhost; says which user, where, and what to change."""


class AccessMissing(AccessRefused):
    """The user lacks a right; says which, on what, and where the rights it needs are to be had."""

    def __str__(self) -> str:
        return self.text


def target_of(setting: Setting, *, vhost: str = "/") -> BrokerTarget:
    """The broker that a setting names; `vhost` where its URL names none. Raises `InvalidUrl`, which says whose URL."""
    try:
        return parse_url(setting.value, vhost=vhost)
    except InvalidUrl as error:
        raise InvalidUrl(f"{setting.source.removesuffix(':')}: {error}") from None


def management_of(target: BrokerTarget, setting: Setting | None, *, timeout_s: float = TIMEOUT_S) -> Management:
    """A client of a broker's management API, where it was said to be or where it usually is; nothing is asked yet.

    Raises `InvalidManagementUrl`.
    """
    if setting is None:
        host = target.hosts[0][0]
        endpoint = guess_endpoint(host, is_tls=target.tls is not None, user=target.user, password=target.password)
    else:
        said = parse_management_url(setting.value, user=target.user, password=target.password)
        endpoint = replace(said, source=setting.source)
    tls = None if target.tls is None or not endpoint.is_tls else target.tls.context()
    return Management(endpoint, tls=tls, timeout_s=timeout_s)


@contextmanager
def explain_refusals(target: BrokerTarget, setting: Setting, *, file: str | None) -> Iterator[None]:
    """Refusals of the broker leave this block as `NotLetIn`, `AccessMissing` and an `ApplyFailed` with a hint.

    `file` declares what is used; None: no file does.
    """
    try:
        yield
    except AuthenticationFailed as error:
        raise NotLetIn(tuple(_let_in(reason, target, setting) for reason in error.reasons)) from None
    except AccessRefused as error:
        text = f"{_lacking(error, target)}; {where_rights_are(file)}"
        raise AccessMissing(error.code, text, object_kind=error.object_kind, object_name=error.object_name) from None
    except ApplyFailed as error:
        if not error.is_forbidden:
            raise
        reason = f"{error.reason}; {where_rights_are(file)}"
        raise ApplyFailed(error.address, reason, error.declared, is_forbidden=True) from None


@asynccontextmanager
async def connected(
    target: BrokerTarget,
    setting: Setting,
    *,
    name: str,
    observer: Observer = SILENT,
    backoff: Callable[[], ReconnectBackoff] = ReconnectBackoff,
    file: str | None = None,
) -> AsyncIterator[Client]:
    """A client that is connected, for as long as the block runs; refusals are told as `explain_refusals` does.

    Raises `ConnectionFailed`, `NotLetIn`, `AccessMissing`.
    """
    with explain_refusals(target, setting, file=file):
        async with Client(target, name=name, observer=observer, backoff=backoff) as client:
            yield client


def where_rights_are(file: str | None) -> str:
    """What to do about a missing right."""
    if file is None:
        return "let somebody grant it that right with: rabbitmqctl set_permissions"
    return f"see the rights it needs with: redrive compile {shlex.quote(file)} --format permissions"


def apply_arguments(file: str, target: BrokerTarget, setting: Setting) -> str:
    """What to write after `redrive apply`: the broker too, without its password, if the command line named it."""
    if setting.source != "--url":
        return shlex.quote(file)
    return f"{shlex.quote(file)} --url {shlex.quote(target.url_without_password)}"


def _let_in(reason: str, target: BrokerTarget, setting: Setting) -> str:
    match = _REASON.fullmatch(reason)
    if match is None:
        return f"{reason}; {_check(setting)}"
    where, text = match["where"], match["text"]
    if match["code"] == "403":
        told = text.partition(" - ")[2] or text
        if "Login was refused" not in text:
            return f"{where} refuses user {target.user}: {told.rstrip('.')}; {_check(setting)}"
        return f"{where} does not accept user {target.user} with this password; {_check(setting)}"
    if "not found" in text:
        return f"{where} has no vhost {target.vhost}; create it, or {_check(setting)}"
    if "refused for user" in text:
        grant = (
            f"grant it with: rabbitmqctl set_permissions -p {shlex.quote(target.vhost)} {shlex.quote(target.user)} …"
        )
        return f"user {target.user} has no access to vhost {target.vhost} of {where}; {grant}, or {_check(setting)}"
    return f"{where}: {text.partition(' - ')[2] or text}; {_check(setting)}"


def _check(setting: Setting) -> str:
    if setting.source == "the default":
        return "name the broker with --url or REDRIVE_URL (the default was tried)"
    return f"check {setting.source.removesuffix(':')}"


def _lacking(error: AccessRefused, target: BrokerTarget) -> str:
    """3.10 does not say which right; what is refused where nothing is declared is reading from a queue."""
    right = _RIGHT.search(error.text)
    what = f"{error.object_kind} {error.object_name}" if error.object_kind else "what it asked for"
    return f"user {target.user} may not {right[1] if right else 'read'} {what} of {target.address}"
