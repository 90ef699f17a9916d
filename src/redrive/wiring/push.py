"""Wiring, for `redrive push`: a queue's messages to a service, by HTTP.

An app with one consumer whose handler is a `Pusher`; everything else (retries, parking, auto-pause, stopping) is the
runtime's, the same as for handlers in Python. A queue that no file declares is looked at first: to reject without a
dead-letter exchange is to throw away.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

from redrive.client import AccessRefused, Backoff, ChannelClosed, Client, NotFound
from redrive.core import InvalidDuration, Observer, Rule, delay_ms_of, did_you_mean
from redrive.deploy import SettingsUnreadable, find_dead_letter_exchange
from redrive.runtime import CRASHES_MAX, PAUSE_ON, App, InvalidPush, Pusher, PushTarget, RunOptions, read_secrets
from redrive.telemetry import MetricsEndpoint
from redrive.topology import declare
from redrive.wiring.apps import Connect, Prepared, Watching, run
from redrive.wiring.files import load_file

Existing = Literal["again", "reject"]
"""What becomes of a failed message of a queue that no file declares: to the queue's end and again after a pause,
without end; or rejected after one run, to the dead-letter exchange the queue has."""
Other4xx = Literal["park", "retry"]
"""What becomes of a message that is answered with a 4xx other than 408, 409, 425 and 429."""
_OTHER_4XX = (range(400, 408), range(410, 425), range(426, 429), range(430, 500))
_MISSING_FIRST_S, _MISSING_LONGEST_S = 0.5, 10.0


def push_target(
    *,
    url: str,
    timeout: str,
    connect_timeout: str,
    concurrency: int,
    secrets: str | None,
    secrets_from: str,
    headers: tuple[str, ...],
) -> PushTarget:
    """A target from what an operator typed; `secrets_from` is the file or variable with the secrets, for messages.

    Raises `InvalidPush`.
    """
    parsed = []
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon:
            raise InvalidPush("a header is given as NAME: VALUE, for example --header 'x-team: orders'")
        parsed.append((name.strip(), value.strip()))
    return PushTarget(
        url=url,
        total_s_max=_timeout_s("--timeout", timeout),
        connect_s_max=_timeout_s("--connect-timeout", connect_timeout),
        concurrency=concurrency,
        secrets=() if secrets is None else read_secrets(secrets, source=secrets_from),
        headers=tuple(parsed),
    )


def _timeout_s(option: str, text: str) -> float:
    try:
        timeout_ms = delay_ms_of(text)
    except InvalidDuration as error:
        raise InvalidPush(f"{option}: {error}") from None
    if timeout_ms <= 0:
        raise InvalidPush(f"{option}: {text} leaves the service no time; write it like 30s")
    return timeout_ms / 1000


def push_app(
    pusher: Pusher,
    queue: str,
    *,
    file: str = "redrive.yaml",
    existing: Existing | None = None,
    pause_after: int | None = None,
    pause_on_timeouts: bool = False,
    crashes_max: int | None = CRASHES_MAX,
    other_4xx: Other4xx | None = None,
) -> App:
    """An app whose only handler pushes. No more messages are taken than requests may be open.

    `pause_after`: so many answers in a row that mean "not there" pause the queue; None leaves it to the file.
    `crashes_max` None counts no deaths, and a 425 is a plain nack then. `other_4xx` None leaves that to the file.
    """
    concurrency = pusher.target.concurrency
    source = file if existing is None else declare(queues={queue: {"retry": False}}, **_EXISTING[existing])
    app = App(source, name="redrive push")
    app.consumer(
        queue,
        prefetch=concurrency,
        concurrency=concurrency,
        pause_after=pause_after,
        pause_on=(*PAUSE_ON, TimeoutError) if pause_on_timeouts else PAUSE_ON,
        crashes_max=crashes_max,
        rules=() if other_4xx is None else (Rule(_OTHER_4XX, other_4xx),),
        needs_id=True,  # without an id an attempt could carry no idempotency key
    )(pusher)
    return app


# Nothing is declared from this. That there is a dead-letter exchange is all the consumer has to know, and a policy says
# so without a word about the queue's own arguments, which are somebody else's.
_EXISTING: dict[Existing, dict[str, object]] = {
    "again": {},
    "reject": {"policies": {"its own": {"pattern": ".*", "definition": {"dead-letter-exchange": "amq.fanout"}}}},
}


def run_push(
    target: PushTarget,
    queue: str,
    *,
    file: str,
    existing: Existing | None,
    has_dead_letter_exchange: bool,
    pause_after: int | None,
    pause_on_timeouts: bool,
    crashes_max: int | None,
    other_4xx: Other4xx | None,
    url: str | None,
    waits: bool,
    watching: Watching,
    started: Callable[[Prepared], None],
) -> None:
    """Pushes until SIGTERM or SIGINT, then ends what is in hand; a second signal ends it at once.

    `waits`: for a queue that is missing, instead of refusing it. `has_dead_letter_exchange`: the operator knows that an
    existing queue has one, and it is not looked for. Raises as `running.run` does, and `InvalidPush`, `EndpointFailed`.
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
            async with MetricsEndpoint(telemetry, host=watching.metrics_host, port=watching.metrics_port):
                yield

    async def look(connect: Connect) -> None:
        async with connect("looking") as client:
            await wait_for_existing(client, queue, waits=waits, observer=telemetry)
            if existing == "reject" and not has_dead_letter_exchange:
                await check_dead_letter_exchange(client, queue)

    app = push_app(
        pusher,
        queue,
        file=file,
        existing=existing,
        pause_after=pause_after,
        pause_on_timeouts=pause_on_timeouts,
        crashes_max=crashes_max,
        other_4xx=other_4xx,
    )
    try:
        run(
            app,
            url=url,
            observer=telemetry,
            options=RunOptions(wait_for_topology=waits),
            started=started,
            beside=beside,
            beforehand=None if existing is None else look,
            from_shell=True,
        )
    finally:
        telemetry.close()


async def wait_for_existing(client: Client, queue: str, *, waits: bool, observer: Observer) -> None:
    """Until a queue that no file declares is there. Raises `InvalidPush` if it is not and `waits` is False."""
    pauses = Backoff(first_s=_MISSING_FIRST_S, longest_s=_MISSING_LONGEST_S)
    is_told = False
    while True:
        channel = await client.channel()
        try:
            await channel.declare_queue(queue, passive=True)
        except NotFound:
            if not waits:
                where = client.target.address
                raise InvalidPush(f"there is no queue {queue} on {where}; declare it, or name another") from None
            if not is_told:
                observer.note("runtime.waiting_for_topology", queue=queue, missing=[f"queue {queue}"])
                is_told = True
            await asyncio.sleep(pauses.next_s())
        except ChannelClosed:
            return  # 403: this user may not ask, and consuming will tell
        else:
            await channel.close()
            return


async def check_dead_letter_exchange(client: Client, queue: str) -> None:
    """That what is rejected from a queue goes somewhere. Raises `InvalidPush` unless that is seen."""
    add = "add --has-dead-letter-exchange"
    try:
        exchange = await find_dead_letter_exchange(client, queue)
    except AccessRefused:
        raise InvalidPush(
            f"user {client.target.user} may not configure queue {queue}, so whether it has a dead-letter exchange can't"
            f" be seen, and without one a rejected message is gone; if it has one, {add}"
        ) from None
    except SettingsUnreadable as error:
        raise InvalidPush(
            f"whether queue {queue} has a dead-letter exchange can't be seen ({error}), and without one a rejected"
            f" message is gone; if it has one, {add}"
        ) from None
    if exchange is None:
        raise InvalidPush(
            f"queue {queue} has no dead-letter exchange among its arguments, and without one a rejected message is"
            f" gone; if a policy gives it one, which AMQP does not show, {add}, else use --existing again"
        )
    if exchange and not await _exchange_is_there(client, exchange):
        raise InvalidPush(
            f"queue {queue} dead-letters to exchange {exchange}, which does not exist, so a rejected message is gone;"
            " declare that exchange and bind a queue to it"
        )


async def _exchange_is_there(client: Client, exchange: str) -> bool:
    channel = await client.channel()
    try:
        await channel.declare_exchange(exchange, passive=True)
    except NotFound:
        return False
    except ChannelClosed:
        return True  # 403: this user may not ask
    await channel.close()
    return True


def _check_declared(queue: str, file: str) -> None:
    """Before the app does: its own refusal names a handler, and whoever pushes has written none."""
    compiled = load_file(file).compiled
    names = () if compiled is None else tuple(one.name for one in compiled.declared)
    if compiled is None or queue in names:
        return
    hint = did_you_mean(queue, names)
    if not hint.startswith("did you mean"):
        hint = "name the file that declares it with --file, or push it undeclared with --existing"
    raise InvalidPush(f"queue {queue} is not declared in {file}; {hint}")
