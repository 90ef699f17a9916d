"""`redrive push`: posts a queue's messages to a service by HTTP.

It is an app with one consumer whose handler is a `Pusher`; the runtime does everything else (retries, parking,
auto-pause, stopping), as for handlers in Python. A queue that no file declares is checked first: without a dead-letter
exchange the broker drops what is rejected.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from redrive.client import AccessRefused, ChannelClosed, Client, NotFound, ReconnectBackoff
from redrive.core import InvalidDuration, Observer, Rule, delay_ms_of, did_you_mean
from redrive.inspection import ArgumentsUnreadable, find_dead_letter_exchange
from redrive.runtime import CRASHES_MAX, PAUSE_ON, App, AppRunOptions, InvalidPush, Pusher, PushTarget, read_secrets
from redrive.topology import Declaration, declare
from redrive.wiring.apps import Connect, PreparedApp, run
from redrive.wiring.files import load_file
from redrive.wiring.process import TelemetryOptions

Existing = Literal["again", "reject"]
"""What becomes of a failed message of a queue that no file declares. `again`: it goes to the queue's end and is pushed
again after a pause, without end. `reject`: it is rejected after one run, to the queue's dead-letter exchange."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedQueue:
    """A queue whose messages are pushed, and how; what is None is left to the file.

    `existing`: no file declares it. `has_dead_letter_exchange`: the operator knows that such a queue has one, and
    nobody looks for it. `pause_after`: so many answers in a row that mean "not there" pause the queue. `crashes_max`
    None counts no crashes, and a 425 is a plain nack then.
    """

    name: str
    file: str = "redrive.yaml"
    existing: Existing | None = None
    has_dead_letter_exchange: bool = False
    pause_after: int | None = None
    pause_on_timeouts: bool = False
    crashes_max: int | None = CRASHES_MAX
    other_4xx: Other4xx | None = None


def push_app(pusher: Pusher, queue: PushedQueue) -> App:
    """An app whose only handler pushes. It takes no more messages than requests may be open."""
    concurrency = pusher.target.concurrency
    source: str | Declaration = queue.file
    if queue.existing is not None:
        source = declare(queues={queue.name: {"retry": False}}, **_EXISTING[queue.existing])
    app = App(source, name="redrive push")
    app.consumer(
        queue.name,
        prefetch=concurrency,
        concurrency=concurrency,
        pause_after=queue.pause_after,
        pause_on=(*PAUSE_ON, TimeoutError) if queue.pause_on_timeouts else PAUSE_ON,
        crashes_max=queue.crashes_max,
        rules=() if queue.other_4xx is None else (Rule(_OTHER_4XX, queue.other_4xx),),
        needs_id=True,  # without an id an attempt could carry no idempotency key
    )(pusher)
    return app


# Nothing is declared from this. The consumer only needs to know that there is a dead-letter exchange; a policy says so
# without naming the queue's own arguments, which are not ours.
_EXISTING: dict[Existing, dict[str, object]] = {
    "again": {},
    "reject": {"policies": {"its own": {"pattern": ".*", "definition": {"dead-letter-exchange": "amq.fanout"}}}},
}


def run_push(
    target: PushTarget,
    queue: PushedQueue,
    *,
    url: str | None,
    waits: bool,
    telemetry_options: TelemetryOptions,
    started: Callable[[PreparedApp], None],
) -> None:
    """Pushes until SIGTERM or SIGINT, then ends the open requests; a second signal ends it at once.

    `waits`: waits for a queue that is missing, instead of refusing it. Raises as `run` does, and `InvalidPush`,
    `EndpointFailed`.
    """
    if queue.existing is None and queue.file != "-":  # stdin can be read only once; the app refuses the queue then
        _check_declared(queue.name, queue.file)
    telemetry = telemetry_options.telemetry()
    pusher = Pusher(target)

    @asynccontextmanager
    async def beside() -> AsyncIterator[None]:
        async with pusher, telemetry_options.endpoint(telemetry):
            yield

    async def check_existing(connect: Connect) -> None:
        async with connect("looking") as client:
            await wait_for_existing(client, queue.name, waits=waits, observer=telemetry)
            if queue.existing == "reject" and not queue.has_dead_letter_exchange:
                await check_dead_letter_exchange(client, queue.name)

    try:
        run(
            push_app(pusher, queue),
            url=url,
            observer=telemetry,
            options=AppRunOptions(wait_for_topology=waits),
            started=started,
            beside=beside,
            beforehand=None if queue.existing is None else check_existing,
            from_shell=True,
        )
    finally:
        telemetry.close()


async def wait_for_existing(client: Client, queue: str, *, waits: bool, observer: Observer) -> None:
    """Waits until a queue that no file declares exists. Raises `InvalidPush` if it does not and `waits` is False."""
    pauses = ReconnectBackoff(first_s=_MISSING_FIRST_S, longest_s=_MISSING_LONGEST_S)
    is_noted = False
    while True:
        channel = await client.channel()
        try:
            await channel.declare_queue(queue, passive=True)
        except NotFound:
            if not waits:
                where = client.target.address
                raise InvalidPush(f"there is no queue {queue} on {where}; declare it, or name another") from None
            if not is_noted:
                observer.note("runtime.waiting_for_topology", queue=queue, missing=[f"queue {queue}"])
                is_noted = True
            await asyncio.sleep(pauses.next_s())
        except ChannelClosed:
            return  # 403: this user may not ask; consuming shows whether it exists
        else:
            await channel.close()
            return


async def check_dead_letter_exchange(client: Client, queue: str) -> None:
    """Checks that the broker keeps what is rejected from a queue. Raises `InvalidPush` if that can't be seen."""
    add = "add --has-dead-letter-exchange"
    try:
        exchange = await find_dead_letter_exchange(client, queue)
    except AccessRefused:
        raise InvalidPush(
            f"user {client.target.user} may not configure queue {queue}, so whether it has a dead-letter exchange can't"
            f" be seen, and without one a rejected message is gone; if it has one, {add}"
        ) from None
    except ArgumentsUnreadable as error:
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
    """Checks the queue before the app does: the app's error names a handler, and here nobody has written one."""
    compiled = load_file(file).compiled
    names = () if compiled is None else tuple(one.name for one in compiled.declared)
    if compiled is None or queue in names:
        return
    hint = did_you_mean(queue, names)
    if not hint.startswith("did you mean"):
        hint = "name the file that declares it with --file, or push it undeclared with --existing"
    raise InvalidPush(f"queue {queue} is not declared in {file}; {hint}")
