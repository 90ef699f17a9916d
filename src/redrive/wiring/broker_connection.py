"""Connects to the broker that a setting names, and explains its refusals so that an operator knows what to change.

The client's errors have the broker's own words. This module adds what the client can't know: where the URL came from,
and which command prints the permissions that a user needs.
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
from redrive.core import NULL_OBSERVER, Observer
from redrive.deploy import ApplyFailed
from redrive.management import TIMEOUT_S, Management, guess_endpoint, parse_management_url
from redrive.wiring.settings import Setting

_REASON = re.compile(r"(?P<where>.*?): (?P<code>403|530) (?P<text>.*)", re.DOTALL)
_RIGHT = re.compile(r"\b(configure|write|read) access to ")


class LoginRefused(AuthenticationFailed):
    """The broker does not accept the user, or not for the vhost; says which user, where, and what to change."""


class PermissionMissing(AccessRefused):
    """The user lacks a permission; says which, on what, and how to find the permissions it needs."""

    def __str__(self) -> str:
        return self.text


def target_of(setting: Setting, *, vhost: str = "/") -> BrokerTarget:
    """The broker that a setting names; `vhost` where its URL names none. Raises `InvalidUrl`, which says whose URL."""
    try:
        return parse_url(setting.value, vhost=vhost)
    except InvalidUrl as error:
        raise InvalidUrl(f"{setting.source.removesuffix(':')}: {error}") from None


def management_of(target: BrokerTarget, setting: Setting | None, *, timeout_s: float = TIMEOUT_S) -> Management:
    """A client of a broker's management API, at its setting or at the usual port; nothing is asked yet.

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
    """Refusals of the broker leave this block as `LoginRefused`, `PermissionMissing` and an `ApplyFailed` with a hint.

    `file` declares what is used, if a file does.
    """
    try:
        yield
    except AuthenticationFailed as error:
        raise LoginRefused(tuple(_login_refusal(reason, target, setting) for reason in error.reasons)) from None
    except AccessRefused as error:
        text = f"{_missing_permission(error, target)}; {permissions_hint(file)}"
        raise PermissionMissing(
            error.code, text, object_kind=error.object_kind, object_name=error.object_name
        ) from None
    except ApplyFailed as error:
        if not error.is_forbidden:
            raise
        reason = f"{error.reason}; {permissions_hint(file)}"
        raise ApplyFailed(error.address, reason, error.declared, is_forbidden=True) from None


@asynccontextmanager
async def connected(
    target: BrokerTarget,
    setting: Setting,
    *,
    name: str,
    observer: Observer = NULL_OBSERVER,
    backoff: Callable[[], ReconnectBackoff] = ReconnectBackoff,
    file: str | None = None,
) -> AsyncIterator[Client]:
    """A connected client while the block runs; refusals are explained as `explain_refusals` does.

    Raises `ConnectionFailed`, `LoginRefused`, `PermissionMissing`.
    """
    with explain_refusals(target, setting, file=file):
        async with Client(target, name=name, observer=observer, backoff=backoff) as client:
            yield client


def permissions_hint(file: str | None) -> str:
    """What to do about a missing permission."""
    if file is None:
        return "let somebody grant it that right with: rabbitmqctl set_permissions"
    return f"see the rights it needs with: redrive compile {shlex.quote(file)} --format permissions"


def apply_arguments(file: str, target: BrokerTarget, setting: Setting) -> str:
    """The arguments of `redrive apply` in a hint: with the URL, without its password, if the command line had it."""
    if setting.source != "--url":
        return shlex.quote(file)
    return f"{shlex.quote(file)} --url {shlex.quote(target.url_without_password)}"


def _login_refusal(reason: str, target: BrokerTarget, setting: Setting) -> str:
    match = _REASON.fullmatch(reason)
    if match is None:
        return f"{reason}; {_check(setting)}"
    where, text = match["where"], match["text"]
    if match["code"] == "403":
        reply = text.partition(" - ")[2] or text
        if "Login was refused" not in text:
            return f"{where} refuses user {target.user}: {reply.rstrip('.')}; {_check(setting)}"
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


def _missing_permission(error: AccessRefused, target: BrokerTarget) -> str:
    """3.10 does not say which permission; where nothing is declared, it is reading from a queue."""
    right = _RIGHT.search(error.text)
    what = f"{error.object_kind} {error.object_name}" if error.object_kind else "what it asked for"
    return f"user {target.user} may not {right[1] if right else 'read'} {what} of {target.address}"
