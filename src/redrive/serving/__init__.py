"""Wiring, for `redrive serve`: the API in this thread's event loop, and beside it what collects and sends back.

`configuration` says what was asked for and by whom; `work` is the collector, the redriver and auto-retry, kept at it
while the broker comes and goes; `worker` gives them a thread; `connections` says how many clients there may be and how
slow; `around` is what every request passes before the app; and `server` puts them together. The web server is an extra,
and imported only when it is to run.
"""

from collections.abc import Callable

from redrive.serving.configuration import ServeConfig, find_configuration, require_console
from redrive.serving.started import FirstToken, ServeFailed, Started
from redrive.wiring import TelemetryOptions

__all__ = [
    "FirstToken",
    "ServeConfig",
    "ServeFailed",
    "Started",
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


def run_serve(config: ServeConfig, *, telemetry_options: TelemetryOptions, started: Callable[[Started], None]) -> None:
    """Serves until SIGTERM or SIGINT. `started` is called once it listens.

    Raises `ServeFailed`, `InvalidSettings`, `InvalidUrl`, `InvalidManagementUrl`, `StoreError`.
    """
    require_console()
    from redrive.serving.server import run_serve as run

    run(config, telemetry_options=telemetry_options, started=started)
