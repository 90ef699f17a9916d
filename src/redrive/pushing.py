"""Wiring, for `redrive push`: a queue's messages to a service, by HTTP.

An app with one consumer whose handler is a `Pusher`; everything else (retries, parking, auto-pause, stopping) is the
runtime's, the same as for handlers in Python.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

from redrive.core import delay_ms_of, did_you_mean
from redrive.files import load
from redrive.running import Prepared, Watching, run
from redrive.runtime import App, InvalidPush, Pusher, PushTarget, read_secrets
from redrive.telemetry import Endpoint
from redrive.topology import declare

__all__ = ["Existing", "InvalidPush", "Prepared", "PushTarget", "Watching", "push_app", "push_target", "run_push"]

Existing = Literal["again", "reject"]
"""What becomes of a failed message of a queue that no file declares: to the queue's end and again after a pause,
without end; or rejected after one run, to the dead-letter exchange the queue has."""


def push_target(
    *,
    url: str,
    timeout: str,
    connect_timeout: str,
    concurrency: int,
    secrets: str | None,
    headers: tuple[str, ...],
) -> PushTarget:
    """A target from what an operator typed. Raises `InvalidPush`, `InvalidDuration`."""
    parsed = []
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon:
            raise InvalidPush("a header is given as NAME: VALUE, for example --header 'x-team: orders'")
        parsed.append((name.strip(), value.strip()))
    return PushTarget(
        url=url,
        total_s_max=delay_ms_of(timeout) / 1000,
        connect_s_max=delay_ms_of(connect_timeout) / 1000,
        concurrency=concurrency,
        secrets=() if secrets is None else read_secrets(secrets),
        headers=tuple(parsed),
    )


def push_app(pusher: Pusher, queue: str, *, file: str = "redrive.yaml", existing: Existing | None = None) -> App:
    """An app whose only handler pushes. No more messages are taken than requests may be open."""
    concurrency = pusher.target.concurrency
    app = App(file if existing is None else declare(queues={queue: _EXISTING[existing]}), name="redrive push")
    app.consumer(queue, prefetch=concurrency, concurrency=concurrency)(pusher)
    return app


_EXISTING: dict[Existing, dict[str, object]] = {
    "again": {"retry": False},
    # Nothing is declared from this; that there is a dead-letter exchange is all the consumer has to know.
    "reject": {"retry": False, "arguments": {"x-dead-letter-exchange": "amq.fanout"}},
}


def run_push(
    target: PushTarget,
    queue: str,
    *,
    file: str,
    existing: Existing | None,
    url: str | None,
    watching: Watching,
    started: Callable[[Prepared], None],
) -> None:
    """Pushes until SIGTERM or SIGINT, then ends what is in hand; a second signal ends it at once.

    Raises as `running.run` does, and `InvalidPush`, `EndpointFailed`.
    """
    if existing is None and file != "-":  # stdin can be read only once; the app refuses the queue then
        _check_declared(queue, file)
    telemetry = watching.telemetry()
    pusher = Pusher(target)

    @asynccontextmanager
    async def beside() -> AsyncIterator[None]:
        async with pusher:
            if watching.metrics_port is None:
                yield
                return
            async with Endpoint(telemetry, host=watching.metrics_host, port=watching.metrics_port):
                yield

    app = push_app(pusher, queue, file=file, existing=existing)
    try:
        run(app, url=url, observer=telemetry, started=started, beside=beside)
    finally:
        telemetry.close()


def _check_declared(queue: str, file: str) -> None:
    """Before the app does: its own refusal names a handler, and whoever pushes has written none."""
    compiled = load(file).compiled
    names = () if compiled is None else tuple(one.name for one in compiled.declared)
    if compiled is None or queue in names:
        return
    hint = did_you_mean(queue, names)
    if not hint.startswith("did you mean"):
        hint = "name the file that declares it with --file, or push it undeclared with --existing"
    raise InvalidPush(f"queue {queue} is not declared in {file}; {hint}")
