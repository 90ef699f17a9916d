"""The copies of a batch: made by the operation's kind, or refused one by one with a reason, before anything is sent."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from redrive.client import Client, ClientError, Outgoing
from redrive.core import shorten
from redrive.deadletters.redrive.copies import CopyRules, Uncopyable, copy_of
from redrive.deadletters.redrive.preflight import exchange_exists
from redrive.records import ClaimedLetter, ItemState, Operation, OperationKind, SendResult, may_send

Copying: TypeAlias = Callable[[Operation, ClaimedLetter, int], Outgoing]
"""Operation, dead letter, now in milliseconds → its copy. Raises Uncopyable."""


class Copier:
    """Makes the copies of one operation for one broker."""

    def __init__(self, client: Client, *, clock_ms: Callable[[], int], returning: Copying) -> None:
        self._client = client
        self._clock_ms = clock_ms
        self._returning = returning
        self._exchanges: dict[str, bool] = {}

    async def copies(
        self, operation: Operation, claimed: Sequence[ClaimedLetter]
    ) -> tuple[list[tuple[str, Outgoing]], list[SendResult]]:
        """What is to be sent, each with its dead letter's id; and those that can't be."""
        made: list[tuple[str, Outgoing]] = []
        refused: list[SendResult] = []
        rules = CopyRules(target=operation.target, who=operation.who, keep_attempts=operation.keep_attempts)
        now_ms = self._clock_ms()
        for letter in claimed:
            try:
                copy = self._copy(operation, letter, rules, now_ms)
                if copy.exchange and not await self._is_there(copy.exchange):
                    raise Uncopyable(f"the exchange {copy.exchange} does not exist")
                made.append((letter.id, copy))
            except Uncopyable as error:
                refused.append(SendResult(id=letter.id, state=ItemState.REFUSED, reason=str(error)))
        return made, refused

    def forget_exchanges(self) -> None:
        """A broker that was away may come back without them."""
        self._exchanges.clear()

    def _copy(self, operation: Operation, letter: ClaimedLetter, rules: CopyRules, now_ms: int) -> Outgoing:
        vhost = self._client.target.vhost
        if letter.vhost != vhost:
            raise Uncopyable(f"it is of vhost {letter.vhost}, and this runner works on {vhost}; run it there")
        if operation.kind is OperationKind.RETURN:
            return self._returning(operation, letter, now_ms)
        copy = copy_of(letter, rules, now_ms=now_ms)
        # Here and not when it was asked for: between the two a letter may have come to say another queue.
        if not may_send(operation.queues, dlq=letter.dlq, exchange=copy.exchange, routing_key=copy.routing_key):
            where = f"exchange {copy.exchange}" if copy.exchange else f"queue {copy.routing_key}"
            raise Uncopyable(
                f"{shorten(where, 300)} is outside of the queues that {operation.who} is limited to; it stays here"
            )
        return copy

    async def _is_there(self, exchange: str) -> bool:
        """A publish to a missing exchange closes the channel, which would put its neighbours in doubt."""
        known = self._exchanges.get(exchange)
        if known is None:
            try:
                known = await exchange_exists(self._client, exchange)
            except (ClientError, TimeoutError):
                return True  # no connection: the send will find out
            self._exchanges[exchange] = known
        return known
