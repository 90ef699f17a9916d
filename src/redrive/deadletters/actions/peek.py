"""Peeking: looks at the messages of a queue without removing them, where that is safe, and nowhere else.

To peek is to get a message and to requeue it, and requeues are counted. What was measured decides (3.10 means all below
4.0, 4.0 all below 4.3):

    queue                            3.10                       4.0                        4.3
    classic                          allowed: order stays       same                       same
    quorum, no delivery limit        only all of it: requeued   same (limit -1)            same (limit -1)
                                     messages go last
    quorum, a limit (4.x: 20 unset)  refused: requeues are      same                       allowed: a nack is
                                     counted, then it is                                   not counted
                                     dropped
    quorum, a limit of a million     allowed: order stays       same                       same
    quorum, limit -1                 refused: drops at once     see no limit               see no limit
    stream, or unknown               refused                    refused                    refused

A refusal says why, and what to do instead: collect. How many requeues are left before a message is dropped can't be
asked: to ask is to peek, so the warning would come with the last one.

Messages are got one by one, held, and requeued by nack in the order they came, on one channel, until the broker has
read the nacks. If the process is killed while it holds them, the broker requeues them as after any crash:
`redelivered`, in the order of the table, and on quorum queues with one delivery counted for each, also on 4.3.
"""

import asyncio
from dataclasses import dataclass, field

from redrive.client import Channel, Client
from redrive.core import RedriveError
from redrive.deadletters.collect.sources import Source
from redrive.management import MANY_DELIVERIES, Management, QueueInfo
from redrive.topology import BrokerVersion, QueueType
from redrive.wire import Got

PEEK_MAX = 1_000
PEEK_BYTES_MAX = 64 * 1024 * 1024
_ANSWER_S_MAX = 30.0
_REQUEUED_S_MAX = 1.0
"""Somebody else may take the requeued messages, so they are not waited for longer."""


class PeekRefused(RedriveError):
    """Peeking would drop or reorder messages; the text says why, and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekedMessage:
    """A message that is still in its queue; `properties` are raw, as they were on the wire."""

    place: int
    """From 1, the head of the queue first."""
    exchange: str
    routing_key: str
    redelivered: bool
    properties: bytes = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekResult:
    """The messages, from the head of the queue. `note` says what peeking changed, if anything; `left` is how many ready
    messages are behind them."""

    messages: tuple[PeekedMessage, ...]
    left: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekPermission:
    """How a queue may be peeked at. `only_whole`: all of it or nothing, because requeued messages go last."""

    only_whole: bool = False


async def peek(client: Client, management: Management | None, queue: str, limit: int) -> PeekResult:
    """The first `limit` messages of a queue, which stay where they are. Raises `PeekRefused`, `ClientError` and
    `ManagementError`.

    Without `management` the queue's type and limit are not known, so it is refused.
    """
    if management is None:
        raise PeekRefused(
            f"can't peek at {queue}: only the management API says whether peeking is safe; add --management-url, or"
            " collect the queue"
        )
    version = BrokerVersion.of((await client.connection()).server_version)
    info = await management.queue(client.target.vhost, queue)
    if info is None:
        raise PeekRefused(f"there is no queue {queue} in vhost {client.target.vhost}")
    source = Source(
        vhost=info.vhost,
        dlq=info.name,
        queue_type=info.type,
        delivery_limit=info.delivery_limit(await management.policy_matcher(info.vhost)),
    )
    permission = decide_peek(info, source, version)
    channel = await client.channel()
    try:
        return await _Peek(channel, queue, permission).take(max(1, min(limit, PEEK_MAX)))
    except TimeoutError:
        raise PeekRefused(f"the broker did not answer about {queue} in {_ANSWER_S_MAX:.0f} s; try again") from None
    finally:
        await channel.close()


def decide_peek(info: QueueInfo, source: Source, version: BrokerVersion) -> PeekPermission:
    """Whether and how a queue may be peeked at: the table above. Raises `PeekRefused`."""
    name = info.name
    if info.type == QueueType.CLASSIC:
        return PeekPermission()
    if info.type != QueueType.QUORUM:
        raise PeekRefused(f"{name} is not looked at: what a {info.type} does with requeued messages is not known")
    limit = source.effective_limit(version)
    if limit is None:
        return PeekPermission(only_whole=True)
    if limit == 0:
        raise PeekRefused(f"{name} is not looked at: its delivery limit drops a message the first time it is requeued")
    if version >= BrokerVersion.V4_3 or limit >= MANY_DELIVERIES:
        return PeekPermission()
    raise PeekRefused(
        f"{name} is not looked at: RabbitMQ {version} counts each look, and drops a message after {limit} of them;"
        " collect it"
    )


class _Peek:
    """One peek at one queue: messages are got, held, and requeued in order."""

    def __init__(self, channel: Channel, queue: str, permission: PeekPermission) -> None:
        self._channel = channel
        self._queue = queue
        self._only_whole = permission.only_whole
        self._held: list[Got] = []
        self._bytes = 0

    async def take(self, limit: int) -> PeekResult:
        note = ""
        if self._only_whole:
            ready = await self._ready()
            if ready > limit:
                raise PeekRefused(
                    f"{self._queue} is not looked at: it has {ready} messages, and those that are requeued go behind"
                    f" the others; look at all of them (--limit {ready}), or collect it"
                    if ready <= PEEK_MAX
                    else f"{self._queue} is not looked at: it has {ready} messages, more than can be held at once, and"
                    " those that are requeued go behind the others; collect it"
                )
        try:
            await self._fill(PEEK_MAX if self._only_whole else limit)
        finally:
            await self._requeue()
        if await self._wait_requeued() != len(self._held) and self._only_whole:
            note = (
                "the queue changed during the peek; the peeked messages were requeued last and may now be behind newer"
                " ones"
            )
        messages = tuple(
            PeekedMessage(
                place=place,
                exchange=got.exchange,
                routing_key=got.routing_key,
                redelivered=got.redelivered,
                properties=got.header,
                body=got.body,
            )
            for place, got in enumerate(self._held, start=1)
        )
        return PeekResult(messages=messages[:limit], left=self._left + max(0, len(messages) - limit), note=note)

    async def _fill(self, limit: int) -> None:
        while len(self._held) < limit and (self._only_whole or self._bytes < PEEK_BYTES_MAX):
            async with asyncio.timeout(_ANSWER_S_MAX):
                got = await self._channel.get_message(self._queue)
            if got is None:
                return
            self._held.append(got)
            self._bytes += len(got.body)

    async def _wait_requeued(self) -> int:
        """Waits a moment until the messages are ready again: a quorum queue requeues them after it has read the nack.
        Returns how many are ready then."""
        expected = len(self._held) + self._left
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _REQUEUED_S_MAX
        while (ready := await self._ready()) < expected and loop.time() < until_s:  # noqa: ASYNC110 - it is bounded
            await asyncio.sleep(0.01)
        return ready

    async def _ready(self) -> int:
        return (await self._channel.declare_queue(self._queue, passive=True)).messages_ready

    @property
    def _left(self) -> int:
        return self._held[-1].message_count if self._held else 0

    async def _requeue(self) -> None:
        """By nack in the order they came: quorum queues keep that order, and 4.3 counts only rejects."""
        if not self._channel.is_open:
            return  # the broker has requeued them already
        for got in self._held:
            self._channel.nack(got, requeue=True)
        async with asyncio.timeout(_ANSWER_S_MAX):
            await self._channel.qos(0)  # a channel is read in order: its answer says that the nacks were read
        # Nothing is held when the channel is closed.
