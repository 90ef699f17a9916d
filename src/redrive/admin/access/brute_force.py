"""The brute-force throttle: repeated wrong tokens from one address are slowed down.

After some wrong tokens an address must wait, twice as long each time, up to a minute; until then its further wrong
tokens are answered 429. A valid token always passes: behind a load balancer everybody has the same address, and one
client that guesses must not lock out the others. Nobody guesses a secret of so many bits anyway. Memory is bounded; the
oldest address is forgotten first.
"""

from collections import OrderedDict
from dataclasses import dataclass

from redrive.admin.access.request_origin import address_network

FREE_GUESSES = 5
WAIT_MS_MAX = 60_000
FORGOTTEN_MS = 10 * 60_000
ADDRESSES_MAX = 10_000


@dataclass(slots=True)
class _Guesses:
    count: int = 0
    last_at_ms: int = 0
    free_at_ms: int = 0


class BruteForceThrottle:
    """Counts wrong tokens by address."""

    def __init__(self) -> None:
        self._guesses: OrderedDict[str, _Guesses] = OrderedDict()

    def wait_ms(self, address: str, now_ms: int) -> int:
        """How long wrong tokens from this address are answered 429; 0: they are not."""
        guesses = self._guesses.get(address_network(address))
        return 0 if guesses is None else max(0, guesses.free_at_ms - now_ms)

    def record_failure(self, address: str, now_ms: int) -> None:
        """Counts a wrong token: an unknown id, or a wrong secret. An expired token is no guess."""
        network = address_network(address)
        guesses = self._guesses.setdefault(network, _Guesses())
        self._guesses.move_to_end(network)
        if now_ms - guesses.last_at_ms > FORGOTTEN_MS:
            guesses.count = 0
        guesses.count += 1
        guesses.last_at_ms = now_ms
        beyond = guesses.count - FREE_GUESSES
        if beyond >= 0:
            guesses.free_at_ms = now_ms + min(WAIT_MS_MAX, 1_000 << min(beyond, 10))
        while len(self._guesses) > ADDRESSES_MAX:
            self._guesses.popitem(last=False)
