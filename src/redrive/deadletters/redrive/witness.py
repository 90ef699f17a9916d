"""The witness: a second copy in a queue of the operation's own, so that a doubt is resolved without guessing.

One publish goes by its BCC header to the target and to the witness queue, to both or to none. Once a batch is recorded
its witness copies are purged. After a redriver died, the next one finds in the witness queue which of the copies had
arrived: those dead letters are resolved, the others pending again, and none stays in doubt.

Its trap: a publish that reaches the witness is confirmed and not returned even where the target is missing. So every
target is looked up before a batch and again after it; if it was deleted meanwhile, its copies stay in doubt. It works
only for copies that go straight to a queue: BCC names keys of the same exchange.
"""

from collections.abc import Callable, Iterable, Sequence

from redrive.client import ChannelClosed, Client, ClientError, Outgoing
from redrive.core import headers, read_count
from redrive.deadletters.redrive.copies import targets_of
from redrive.inspection import queue_state
from redrive.records import DeadLetter, ItemState, Operation, Selection, SendResult, Status
from redrive.stores import Store, VersionConflict
from redrive.wire import Properties

WHO = "witness"
TARGET_GONE = "its queue was deleted while it was sent, or could not be looked at; only the witness is sure to have it"
"""The reason of a doubt that the witness can't resolve."""
_PAGE = 500


def witness_queue(operation_id: str) -> str:
    """The name of an operation's witness queue."""
    return f"redrive.witness.{operation_id}"


class Witness:
    """The witness queue of one operation.

    Every call raises ClientError without a broker, and TimeoutError without an answer.
    """

    def __init__(self, client: Client, operation_id: str) -> None:
        self._client = client
        self.queue = witness_queue(operation_id)

    async def declare(self) -> None:
        """Declares the queue; what a dead redriver left in it stays."""
        channel = await self._client.channel()
        await channel.declare_queue(self.queue, arguments={"x-queue-type": "quorum"})
        await channel.close()

    async def witnessed(
        self, copies: Sequence[tuple[str, Outgoing]]
    ) -> tuple[list[tuple[str, Outgoing]], list[SendResult]]:
        """The copies, routed to the witness too; and the results of those that can't be sent to a queue that exists."""
        await self.declare()  # without it a copy would arrive unnoticed
        missing = await self.missing({copy.routing_key for _, copy in copies if not copy.exchange})
        witnessed, refused = [], []
        for id, copy in copies:
            if copy.exchange:
                reason = f"a witness needs a queue as target, and {copy.exchange} is an exchange"
                refused.append(SendResult(id=id, state=ItemState.REFUSED, reason=reason))
            elif copy.routing_key in missing:
                reason = f"no queue takes it: {copy.routing_key} does not exist"
                refused.append(SendResult(id=id, state=ItemState.REFUSED, reason=reason))
            else:
                witnessed.append((id, self._mark(copy)))
        return witnessed, refused

    async def checked(self, copies: Sequence[tuple[str, Outgoing]], results: Sequence[SendResult]) -> list[SendResult]:
        """The results after a second look at the targets: what was confirmed for a deleted one is in doubt."""
        try:
            missing = await self.missing({copy.routing_key for _, copy in copies})
        except (ClientError, TimeoutError):
            missing = {copy.routing_key for _, copy in copies}
        gone = {id for id, copy in copies if copy.routing_key in missing}
        return [
            SendResult(id=one.id, state=ItemState.IN_DOUBT, reason=TARGET_GONE)
            if one.state is ItemState.SENT and one.id in gone
            else one
            for one in results
        ]

    async def seen(self) -> set[tuple[str, int]]:
        """Which copies arrived, as (dead letter, which redrive). They stay in the queue until `purge`."""
        channel = await self._client.channel()
        found: set[tuple[str, int]] = set()
        # Requeued all at once when the channel closes: nobody else reads this queue, and the delivery limit does not
        # matter, since the next step purges it.
        while (got := await channel.get_message(self.queue)) is not None:
            properties = Properties(got.header)
            found.add(
                (str(properties.header(headers.REDRIVEN_ID)), read_count(properties.header(headers.REDRIVEN_COUNT)))
            )
        await channel.close()
        return found

    async def purge(self) -> None:
        """Removes the copies: the batch is recorded."""
        channel = await self._client.channel()
        await channel.purge_queue(self.queue)
        await channel.close()

    async def delete(self) -> None:
        """Deletes the queue: the operation has ended and nothing of it is in doubt."""
        channel = await self._client.channel()
        await channel.delete_queue(self.queue)
        await channel.close()

    async def missing(self, queues: Iterable[str]) -> set[str]:
        """Which of these queues do not exist."""
        missing = set()
        for name in sorted(queues):
            try:
                if await queue_state(self._client, name) is None:
                    missing.add(name)
            except ChannelClosed:
                pass  # this user may not look at it, but it is there
        return missing

    def _mark(self, copy: Outgoing) -> Outgoing:
        properties = copy.properties if isinstance(copy.properties, Properties) else Properties(copy.properties)
        return copy._replace(properties=properties.edit(headers={"BCC": [self.queue]}))


async def resolve_by_witness(
    store: Store, witness: Witness, operation: Operation, *, clock_ms: Callable[[], int]
) -> tuple[int, int]:
    """Decides the in-doubt letters of an operation whose redriver died: how many copies had arrived, how many had not.

    The lease has run out by then, so what the dead redriver wrote has reached the queues. A dead letter that came back
    meanwhile, or that somebody decided about, is left as it is. Raises ClientError, StoreError.
    """
    doubtful = await _doubtful(store, witness, operation)
    if not doubtful:
        return 0, 0
    seen = await witness.seen()
    arrived = lost = 0
    for letter in doubtful:
        selection = Selection(ids=(letter.id,))
        try:
            if (letter.id, letter.redrives) in seen:
                why = "it arrived: the witness has a copy"
                done = await store.letters.resolve(
                    selection, who=WHO, why=why, now_ms=clock_ms(), if_version=letter.version
                )
                arrived += done.done
            else:
                why = "it did not arrive: the witness has no copy"
                done = await store.letters.reopen(
                    selection, who=WHO, why=why, now_ms=clock_ms(), if_version=letter.version
                )
                lost += done.done
        except VersionConflict:
            continue
    return arrived, lost


async def _doubtful(store: Store, witness: Witness, operation: Operation) -> list[DeadLetter]:
    """The dead letters that this operation left in doubt and whose target exists."""
    found: list[tuple[DeadLetter, str]] = []
    cursor: str | None = None
    while True:
        items, cursor = await store.operations.items(operation.id, _PAGE, cursor, ItemState.IN_DOUBT)
        for item in items:
            letter = await store.letters.get(item.letter_id)
            if letter is not None and letter.status is Status.IN_DOUBT and letter.operation_id == operation.id:
                targets = targets_of({letter.queue: 1}, operation.target)
                found += [
                    (letter, key) for exchange, key in targets if not exchange and key and item.reason != TARGET_GONE
                ]
        if cursor is None:
            break
    missing = await witness.missing({key for _, key in found})
    return [letter for letter, key in found if key not in missing]
