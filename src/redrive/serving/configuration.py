"""The settings of `redrive serve` and their sources: a flag wins, then the environment, then the file; defaults last.

All of it can be shown: passwords in URLs are masked, and nothing else here is a secret.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from redrive.core import RedriveError, mask_url
from redrive.serving.startup import ServeFailed
from redrive.wiring import (
    DEFAULT_HOST,
    CollectRequest,
    ConnectionSettings,
    Setting,
    chosen_port,
    chosen_setting,
    find_connection_settings,
    switch_setting,
)

_NEEDED = ("fastapi", "uvicorn")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Where to listen, what to serve, what to do beside it."""

    connections: ConnectionSettings
    host: Setting
    port: Setting
    match: Setting
    observe: Setting
    request: CollectRequest
    """What is to be collected: `match` and `observe` as names, not as text."""
    collect: Setting
    auto_retry: Setting
    auth: Setting
    audit_reads: Setting
    first_token_file: Setting
    tls_cert: Setting
    tls_key: Setting
    proxies: Setting
    trusted_proxies: tuple[str, ...]

    @property
    def port_number(self) -> int:
        """The port; 0 takes any free one."""
        return int(self.port.value)

    @property
    def collects(self) -> bool:
        """Whether dead letters are taken out of their queues here."""
        return self.collect.value == "yes"

    @property
    def auto_retries(self) -> bool:
        """Whether what is due is sent back from here."""
        return self.auto_retry.value == "yes"

    @property
    def audits_reads(self) -> bool:
        """Whether it is noted who read a payload."""
        return self.audit_reads.value == "yes"

    @property
    def requires_auth(self) -> bool:
        """Whether a token is asked for."""
        return self.auth.value == "yes"

    def shown(self) -> list[tuple[str, str, str]]:
        """Name, value and source of every setting, without a secret."""
        connections = self.connections
        management = connections.management_url or _guessed_management(connections)
        named = {
            "broker": connections.url,
            "management": management,
            "database": connections.database,
            "host": self.host,
            "port": self.port,
            "match": self.match,
            "observe": self.observe,
            "collect": self.collect,
            "auto-retry": self.auto_retry,
            "auth": self.auth,
            "audit payloads": self.audit_reads,
            "first token file": self.first_token_file,
            "TLS certificate": self.tls_cert,
            "TLS key": self.tls_key,
            "trusted proxies": self.proxies,
        }
        return [(name, masked(setting.value), setting.source) for name, setting in named.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `redrive serve` as they were typed; None, () and False were not typed."""

    file: str | None = None
    url: str | None = None
    management_url: str | None = None
    database: str | None = None
    host: str | None = None
    port: int | None = None
    match: Sequence[str] = ()
    observe: Sequence[str] = ()
    no_collect: bool = False
    no_auto_retry: bool = False
    no_auth: bool = False
    audit_payloads: bool = False
    first_token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    proxies: Sequence[str] = ()


def find_configuration(options: ServeOptions, *, environment: Mapping[str, str] | None = None) -> ServeConfig:
    """All settings with their sources. Raises `InvalidSetting`, and what reading a file may."""
    known = os.environ if environment is None else environment
    connections = find_connection_settings(
        url=options.url,
        management_url=options.management_url,
        database=options.database,
        file=options.file,
        environment=known,
    )
    match, observe, proxies = options.match, options.observe, options.proxies

    def text(flag: str, said: str | None, variable: str) -> Setting:
        return chosen_setting(flag, said, known, variable, "")

    return ServeConfig(
        connections=connections,
        host=chosen_setting("--host", options.host, known, "REDRIVE_HOST", DEFAULT_HOST),
        port=chosen_port(options.port, known),
        match=text("--match", ", ".join(match) or None, "REDRIVE_MATCH"),
        observe=text("--observe", ", ".join(observe) or None, "REDRIVE_OBSERVE"),
        request=CollectRequest(
            patterns=tuple(match) or _listed(known.get("REDRIVE_MATCH", "")),
            observe=tuple(observe) or _listed(known.get("REDRIVE_OBSERVE", "")),
        ),
        collect=switch_setting("--no-collect", options.no_collect, known, "REDRIVE_COLLECT"),
        auto_retry=switch_setting("--no-auto-retry", options.no_auto_retry, known, "REDRIVE_AUTO_RETRY"),
        auth=switch_setting("--no-auth", options.no_auth, known, "REDRIVE_AUTH"),
        audit_reads=_switched_on("--audit-payloads", options.audit_payloads, known, "REDRIVE_AUDIT_PAYLOADS"),
        first_token_file=text("--first-token-file", options.first_token_file, "REDRIVE_FIRST_TOKEN_FILE"),
        tls_cert=text("--tls-cert", options.tls_cert, "REDRIVE_TLS_CERT"),
        tls_key=text("--tls-key", options.tls_key, "REDRIVE_TLS_KEY"),
        proxies=text("--trusted-proxy", ", ".join(proxies) or None, "REDRIVE_TRUSTED_PROXIES"),
        trusted_proxies=tuple(proxies) or _listed(known.get("REDRIVE_TRUSTED_PROXIES", "")),
    )


def _switched_on(flag: str, is_on: bool, environment: Mapping[str, str], variable: str) -> Setting:
    """Something that is off unless somebody says yes. Raises `InvalidSetting`."""
    if is_on:
        return Setting(value="yes", source=flag)
    said = switch_setting(flag, False, environment, variable)
    return Setting(value="no", source=said.source) if said.source == "the default" else said


def require_console() -> None:
    """Raises `ServeFailed` unless the web server is installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ServeFailed(
            f"the admin API needs {' and '.join(missing)}, not installed here; run: pip install 'redrive[console]'"
        )


def _guessed_management(connections: ConnectionSettings) -> Setting:
    try:
        address = connections.management().endpoint.address
    except RedriveError:
        address = ""  # connecting reports what is wrong with the broker's URL
    return Setting(value=address, source="guessed from the broker's URL")


def masked(value: str) -> str:
    """A setting's text with the password of a URL, and what is like one in its query, replaced."""
    return mask_url(value) if "@" in value or ":/" in value else value


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
