"""How long to wait before the next try: exponential, bounded, jittered so that many clients do not return at once."""

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class ReconnectBackoff:
    """`next_s` grows from `first_s` to `longest_s`; each wait is drawn between half and the whole of that."""

    first_s: float = 0.1
    longest_s: float = 30.0
    random: Callable[[], float] = random.random
    _tries: int = 0

    def next_s(self) -> float:
        """How long to wait now."""
        whole = min(self.longest_s, self.first_s * (1 << min(self._tries, 30)))
        self._tries += 1
        return whole * (0.5 + self.random() / 2)

    def reset(self) -> None:
        """Starts again from `first_s`: the last try worked."""
        self._tries = 0
