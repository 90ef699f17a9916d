"""Repeated guesses from one address are slowed down, without any harm to those whose tokens are right.

After some wrong tokens an address must wait, twice as long each time, up to a minute; until then its wrong tokens are
answered 429. A right one passes all the while: behind a load balancer everybody has one address, and one who guesses
must not lock out the others; nobody guesses a secret of so many bits. Memory is bounded; what is forgotten first is
oldest.
"""

from collections import OrderedDict
from dataclasses import dataclass

from redrive.admin.senders import origin_of

FREE_GUESSES = 5
WAIT_MS_MAX = 60_000
FORGOTTEN_MS = 10 * 60_000
ADDRESSES_MAX = 10_000


@dataclass(slots=True)
class _Guesses:
    count: int = 0
    last_at_ms: int = 0
    free_at_ms: int = 0


class Slowing:
    """How many wrong tokens came from where."""

    def __init__(self) -> None:
        self._guesses: OrderedDict[str, _Guesses] = OrderedDict()

    def wait_ms(self, address: str, now_ms: int) -> int:
        """How long this address must wait before another wrong token of it counts as one; 0: it need not."""
        guesses = self._guesses.get(origin_of(address))
        return 0 if guesses is None else max(0, guesses.free_at_ms - now_ms)

    def guessed(self, address: str, now_ms: int) -> None:
        """A token was wrong: no such id, or another secret. One that has expired is no guess."""
        origin = origin_of(address)
        guesses = self._guesses.setdefault(origin, _Guesses())
        self._guesses.move_to_end(origin)
        if now_ms - guesses.last_at_ms > FORGOTTEN_MS:
            guesses.count = 0
        guesses.count += 1
        guesses.last_at_ms = now_ms
        beyond = guesses.count - FREE_GUESSES
        if beyond >= 0:
            guesses.free_at_ms = now_ms + min(WAIT_MS_MAX, 1_000 << min(beyond, 10))
        while len(self._guesses) > ADDRESSES_MAX:
            self._guesses.popitem(last=False)
