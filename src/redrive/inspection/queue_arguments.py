"""What the arguments of a queue are, asked over AMQP, which has no method to read them.

Declaring a queue that exists changes nothing, and the broker's refusal names the first argument that differs and its
current value. So the queue is declared again and again, each time with the values learnt so far, until the argument in
question comes up or the declare is accepted.
"""

from collections.abc import Collection

from redrive.client import ArgumentMismatch, Client, PreconditionFailed, read_argument_mismatch

_DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"
_IMPOSSIBLE = 0
_DECLARES_MAX = 40
"""More than a queue has arguments and flags."""


class ArgumentsUnreadable(PreconditionFailed):
    """The broker's refusals do not say what the arguments are; its last one is the text."""


async def find_mismatch(
    client: Client,
    queue: str,
    flags: dict[str, bool],
    arguments: dict[str, object],
    *,
    among: Collection[str],
) -> ArgumentMismatch | None:
    """The first of the arguments `among` that an existing queue has otherwise; None if it has none otherwise.

    The broker's values of all other arguments are written into `flags` and `arguments`. A queue that does not exist
    would be declared: give an argument that no queue can have, or know that it exists. Raises `ArgumentsUnreadable`,
    `AccessRefused` (it takes the right to configure the queue) and `ResourceLocked`.
    """
    seen: set[str] = set()
    for _ in range(_DECLARES_MAX):
        channel = await client.channel()
        try:
            await channel.declare_queue(queue, **flags, arguments=arguments)
        except PreconditionFailed as error:
            mismatch = read_argument_mismatch(error.text)
            if mismatch is not None and mismatch.name in among:
                return mismatch
            if mismatch is None or mismatch.name in seen or not mismatch.adopt(flags, arguments):
                raise ArgumentsUnreadable(error.code, error.text) from None
            seen.add(mismatch.name)
        else:
            await channel.close()
            return None
    raise ArgumentsUnreadable(406, f"the settings of queue {queue} can't be told apart")


async def find_dead_letter_exchange(client: Client, queue: str) -> str | None:
    """The exchange that a queue's own arguments name ("" is the default exchange), or None. Policies are not seen.

    The queue is declared with a dead-letter exchange that it can't have: a number. So a queue that was deleted
    meanwhile is not declared anew: RabbitMQ checks the arguments of a new queue and refuses that one ("invalid type";
    3.10.8, 4.0.5 and 4.3.6).

    Raises `NotFound`, `AccessRefused` (it takes the right to configure the queue), `ResourceLocked` and
    `ArgumentsUnreadable`.
    """
    await _require(client, queue)
    flags = {"durable": True, "auto_delete": False}
    arguments: dict[str, object] = {"x-queue-type": "classic", _DEAD_LETTER_EXCHANGE: _IMPOSSIBLE}
    try:
        mismatch = await find_mismatch(client, queue, flags, arguments, among=(_DEAD_LETTER_EXCHANGE,))
    except ArgumentsUnreadable:
        await _require(client, queue)
        raise
    # Accepted: the argument was not even compared. It is a stream, whose messages nobody can reject.
    return None if mismatch is None or mismatch.value is None else str(mismatch.value)


async def _require(client: Client, queue: str) -> None:
    """Raises `NotFound` if there is no such queue."""
    channel = await client.channel()
    await channel.declare_queue(queue, passive=True)
    await channel.close()
