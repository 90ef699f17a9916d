"""What a node is configured with: the options a test may choose, and the files and environment they become.

Pure: no file is read or written here, so that every line a node gets can be tested without a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PLUGINS = ("rabbitmq_management",)
# Two schedulers and no busy waiting: several nodes share few cores. The distribution port is for loopback only.
ERL_ARGS = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """A TLS listener beside the plain one. The files must lie under the system's temp folder (tmp_path does)."""

    ca: Path
    certificate: Path
    key: Path
    verify_peer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What a test may choose for its own node.

    `conf`: more lines of rabbitmq.conf. `advanced`: the text of advanced.config. `plugins`: enabled besides management.
    `definitions`: a definitions.json the node boots with (`load_definitions`), its text or its file, used as it is.
    `peers`: the names of all nodes of its cluster.
    """

    conf: str = ""
    advanced: str = ""
    plugins: tuple[str, ...] = ()
    definitions: str | Path | None = None
    tls: Tls | None = None
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Where a node lives: its name, folder and ports."""

    name: str
    folder: Path
    amqp_port: int
    management_port: int
    dist_port: int
    tls_port: int

    @property
    def definitions_file(self) -> Path:
        return self.folder / "etc" / "definitions.json"


def rabbitmq_conf(place: NodePlace, options: NodeOptions) -> str:
    lines = [
        f"listeners.tcp.1 = 127.0.0.1:{place.amqp_port}",
        "management.tcp.ip = 127.0.0.1",
        f"management.tcp.port = {place.management_port}",
        "loopback_users.guest = true",
        "disk_free_limit.absolute = 50MB",
        "vm_memory_high_watermark.absolute = 1GB",
        "log.file.level = info",
        "log.console = false",
    ]
    if options.definitions is not None:
        lines.append(f"load_definitions = {place.definitions_file}")
    if options.tls is not None:
        lines += _tls_lines(place, options.tls)
    if options.peers:
        lines.append("cluster_formation.peer_discovery_backend = classic_config")
        lines += [f"cluster_formation.classic_config.nodes.{n} = {name}" for n, name in enumerate(options.peers, 1)]
    return "\n".join([*lines, options.conf.rstrip("\n"), ""])


def enabled_plugins(options: NodeOptions) -> str:
    return f"[{','.join(dict.fromkeys((*PLUGINS, *options.plugins)))}].\n"


def environment(place: NodePlace) -> Mapping[str, str]:
    """What both the node and its command-line tools are started with."""
    etc = place.folder / "etc"
    return {
        "RABBITMQ_NODENAME": place.name,
        "RABBITMQ_DIST_PORT": str(place.dist_port),
        "RABBITMQ_MNESIA_BASE": str(place.folder / "data"),
        "RABBITMQ_LOG_BASE": str(place.folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(etc / "rabbitmq"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(etc / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(etc / "enabled_plugins"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(etc / "generated"),
        # The distribution's own /etc/rabbitmq/rabbitmq-env.conf must not have a say.
        "RABBITMQ_CONF_ENV_FILE": "/nonexistent",
        # Any free port: the tools' ten default ones are too few when several runs use them at a time.
        "RABBITMQ_CTL_DIST_PORT_MIN": "0",
        "RABBITMQ_CTL_DIST_PORT_MAX": "0",
        "RABBITMQ_CTL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        # A node that fails says why in its log; a dump of its memory would land in the folder it was started in.
        "ERL_CRASH_DUMP_SECONDS": "0",
        # The server's script would run Erlang as its child and wait; with "input allowed" it becomes Erlang itself, so
        # that the process the supervisor started is the node. The input it then allows is taken back.
        "RABBITMQ_ALLOW_INPUT": "true",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-noinput {ERL_ARGS}",
    }


def _tls_lines(place: NodePlace, tls: Tls) -> list[str]:
    return [
        f"listeners.ssl.1 = 127.0.0.1:{place.tls_port}",
        f"ssl_options.cacertfile = {tls.ca}",
        f"ssl_options.certfile = {tls.certificate}",
        f"ssl_options.keyfile = {tls.key}",
        f"ssl_options.verify = {'verify_peer' if tls.verify_peer else 'verify_none'}",
        f"ssl_options.fail_if_no_peer_cert = {'true' if tls.verify_peer else 'false'}",
    ]
