"""Who is told what happened: rooms that do I/O report to an `Observer`; wiring decides what listens.

An event has a stable name in the past tense with its room in front (`client.connected`, `consumer.cancelled`) and plain
fields. Observing must not block and must not raise.
"""

from typing import Protocol


class Observer(Protocol):
    """Takes note of events."""

    def note(self, event: str, /, **fields: object) -> None:
        """One event, with what is known about it."""


class Silent:
    """An observer that nobody reads."""

    def note(self, event: str, /, **fields: object) -> None:
        """Forgets the event."""


SILENT = Silent()
"""The observer used where none is given."""
