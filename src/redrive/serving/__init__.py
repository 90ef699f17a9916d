"""`redrive serve`: the admin API in this thread's event loop, and in another thread what collects and redrives.

`configuration` has the settings and their sources. `worker_loop` keeps the collector, the redriver and auto-retry
running while the broker comes and goes; `worker_thread` gives them a thread, and `worker_throttle` makes that thread
yield to requests. `connection_limits` says how many clients may connect and how slow they may be; `proxies` and
`request_monitor` are what every request passes before the app; `server` puts all of it together. The web server is an
extra, and imported only when it is to run.
"""

from collections.abc import Callable

from redrive.serving.configuration import ServeConfig, ServeOptions, find_configuration, require_console
from redrive.serving.startup import FirstToken, ServeFailed, ServerStarted
from redrive.wiring import TelemetryOptions

__all__ = [
    "FirstToken",
    "ServeConfig",
    "ServeFailed",
    "ServeOptions",
    "ServerStarted",
    "check_configuration",
    "find_configuration",
    "require_console",
    "run_serve",
]


def check_configuration(config: ServeConfig) -> None:
    """Raises what `run_serve` would before it listens: `ServeFailed`, `InvalidSettings`, `InvalidUrl`,
    `InvalidManagementUrl`."""
    require_console()
    from redrive.serving.server import settings_of

    settings_of(config)


def run_serve(
    config: ServeConfig, *, telemetry_options: TelemetryOptions, started: Callable[[ServerStarted], None]
) -> None:
    """Serves until SIGTERM or SIGINT. `started` is called once it listens.

    Raises `ServeFailed`, `InvalidSettings`, `InvalidUrl`, `InvalidManagementUrl`, `StoreError`.
    """
    require_console()
    from redrive.serving.server import run_serve as run

    run(config, telemetry_options=telemetry_options, started=started)
