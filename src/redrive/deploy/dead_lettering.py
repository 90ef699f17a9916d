"""Has a queue a dead-letter exchange? Asked over AMQP, which has no question for it, without declaring anything.

Declaring a queue that exists changes nothing, and the broker's refusal says the first setting that differs and what it
is now. So the queue is declared with a dead-letter exchange it can't have, and with every setting that was told before,
until the one that differs is the dead-letter exchange.

The exchange it can't have is a number. A queue that went away since it was seen is therefore not made by the question:
RabbitMQ checks the arguments of a new queue and refuses that one ("invalid type"; 3.10.8, 4.0.5 and 4.3.6).
"""

from redrive.client import Client, PreconditionFailed, read_argument_mismatch

_ARGUMENT = "x-dead-letter-exchange"
_IMPOSSIBLE = 0
_QUESTIONS_MAX = 40
"""More than a queue has settings."""


class SettingsUnreadable(PreconditionFailed):
    """The broker's answers do not say what was asked; its last one is the text."""


async def find_dead_letter_exchange(client: Client, queue: str) -> str | None:
    """The exchange that a queue's own arguments name ("" is the default exchange), or None. Policies are not seen.

    Raises `NotFound`, `AccessRefused` (it takes the right to configure the queue), `ResourceLocked` and
    `SettingsUnreadable`.
    """
    channel = await client.channel()
    await channel.declare_queue(queue, passive=True)
    flags = {"durable": True, "auto_delete": False}
    arguments: dict[str, object] = {"x-queue-type": "classic"}
    told: set[str] = set()
    for _ in range(_QUESTIONS_MAX):
        if not channel.is_open:
            channel = await client.channel()
        try:
            await channel.declare_queue(queue, **flags, arguments={**arguments, _ARGUMENT: _IMPOSSIBLE})
        except PreconditionFailed as error:
            mismatch = read_argument_mismatch(error.text)
            if mismatch is None:
                await _raise_if_gone(client, queue)
                raise SettingsUnreadable(error.code, error.text) from None
            if mismatch.name == _ARGUMENT:
                return None if mismatch.value is None else str(mismatch.value)
            if mismatch.name in told or not mismatch.adopt(flags, arguments):
                raise SettingsUnreadable(error.code, error.text) from None
            told.add(mismatch.name)
        else:
            # It was not even compared: a stream, whose messages nobody can reject.
            await channel.close()
            return None
    raise SettingsUnreadable(406, f"the settings of queue {queue} can't be told apart")


async def _raise_if_gone(client: Client, queue: str) -> None:
    channel = await client.channel()
    await channel.declare_queue(queue, passive=True)
    await channel.close()
