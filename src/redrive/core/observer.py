"""`Observer`: what rooms with I/O report events to. Wiring decides which observer they get.

An event has a stable name in the past tense with its room in front (`client.connected`, `consumer.cancelled`) and plain
fields. Observing must not block and must not raise.
"""

from typing import Protocol


class Observer(Protocol):
    """Takes note of events."""

    def note(self, event: str, /, **fields: object) -> None:
        """Reports one event with its fields."""


class NullObserver:
    """An observer that ignores everything."""

    def note(self, event: str, /, **fields: object) -> None:
        """Ignores the event."""


NULL_OBSERVER = NullObserver()
"""The observer used where none is given."""
