"""How fast an operation goes: its rate, its ramp, the size of its batches, its progress. No I/O.

A ramp of (1, 2, 5, 20) sends 1, then 2, then 5, then 20 at a time. After each of the four the copies are watched for a
while, and if one comes back the operation pauses (the canary). Then it sends 20 at a time without waits.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from redrive.records import Operation

BATCH_MAX = 1_000
BATCH_BYTES = 32 << 20
_FIRST_BATCH = 20
"""Before anything is known about their sizes: twenty of 16 MB are in memory at most."""
_SLICE_S = 0.5
"""With a rate, a batch is what may be sent in this time, so that a pause is noticed soon."""
_RATE_WINDOW = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveProgress:
    """How far an operation is. `rate_per_s` and `eta_s` are None while they are not known."""

    operation: Operation
    rate_per_s: float | None
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class RampStep:
    """The next batch: how many at most, and whether its copies are watched afterwards."""

    size: int
    is_canary: bool


class RateLimiter:
    """Spreads sends over time, so that no more than `rate_per_s` are sent; None is without limit."""

    def __init__(self, rate_per_s: float | None) -> None:
        if rate_per_s is not None and not rate_per_s > 0:
            raise ValueError(f"a rate of {rate_per_s} messages a second sends nothing; it must be above zero")
        self._rate_per_s = rate_per_s
        self._free_at_s: float | None = None

    @property
    def batch_max(self) -> int:
        """How many may be sent at once."""
        return BATCH_MAX if self._rate_per_s is None else max(1, min(BATCH_MAX, int(self._rate_per_s * _SLICE_S)))

    def wait_s(self, now_s: float) -> float:
        """How long until the next may be sent."""
        return 0.0 if self._free_at_s is None else max(0.0, self._free_at_s - now_s)

    def spend(self, count: int, now_s: float) -> None:
        """So many are sent now."""
        if self._rate_per_s is not None:
            self._free_at_s = now_s + self.wait_s(now_s) + count / self._rate_per_s


class BatchSize:
    """How many to take so that their bodies fit into memory, judged by the last batch."""

    def __init__(self, most: int = BATCH_MAX) -> None:
        self._most = most
        self._next = min(most, _FIRST_BATCH)
        self._is_known = False

    @property
    def value(self) -> int:
        """The next size."""
        return self._next

    @property
    def is_largest(self) -> bool:
        """Whether the last batch has shown that memory does not limit the next."""
        return self._is_known and self._next == self._most

    def learn(self, sizes: Sequence[int]) -> None:
        """Adjusts the next size to those of the last batch, in bytes."""
        if sizes:
            average = max(1, sum(sizes) // len(sizes))
            self._next = max(1, min(self._most, BATCH_BYTES // average))
            self._is_known = True


class RateMeter:
    """Measures the rate of the last batches, and estimates when all are done."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=_RATE_WINDOW)

    def progress(self, operation: Operation, now_s: float) -> RedriveProgress:
        """How far the operation is now; called after every batch."""
        done = operation.total - operation.left
        self._seen.append((now_s, done))
        (first_s, first_done), (last_s, last_done) = self._seen[0], self._seen[-1]
        rate = (last_done - first_done) / (last_s - first_s) if last_s > first_s and last_done > first_done else None
        eta_s = 0.0 if operation.left == 0 else None if rate is None else operation.left / rate
        return RedriveProgress(operation=operation, rate_per_s=rate, eta_s=eta_s)


def next_step(ramp: Sequence[int], done: int, most: int) -> RampStep:
    """The next batch of an operation of which `done` items have ended: by its ramp, at most `most`."""
    if not ramp:
        return RampStep(most, False)
    until = 0
    for size in ramp:
        until += size
        if done < until:
            size = min(until - done, most)
            return RampStep(size, done + size == until)
    return RampStep(min(ramp[-1], most), False)
