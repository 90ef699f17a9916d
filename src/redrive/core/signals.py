"""What a handler raises to decide about its message itself, instead of leaving it to the policy."""

from datetime import timedelta

from redrive.core.durations import InvalidDuration, parse_duration_ms


class Signal(Exception):
    """The base of the three signals."""


class Park(Signal):
    """Do not retry: move the message to the dead letters, with this reason."""

    def __init__(self, reason: str = "parked by the handler") -> None:
        self.reason = reason
        super().__init__(reason)


class RetryAfter(Signal):
    """Retry after `delay` ("2m", seconds, or a timedelta); counts as an attempt."""

    def __init__(self, delay: "str | float | timedelta", reason: str = "") -> None:
        self.delay_ms = delay_ms_of(delay)
        self.reason = reason
        super().__init__(reason or f"again after {self.delay_ms / 1000:g} s")


class Requeue(Signal):
    """Requeue after a short pause in the consumer, by default a random 0.5 to 1.5 s; not counted as an attempt."""

    def __init__(self, pause: "str | float | timedelta | None" = None, reason: str = "") -> None:
        self.pause_ms = None if pause is None else delay_ms_of(pause)
        self.reason = reason
        super().__init__(reason or "requeued by the handler")


def delay_ms_of(delay: "str | float | timedelta") -> int:
    """Milliseconds from a text with its unit, from seconds, or from a timedelta. Raises `InvalidDuration` for anything
    else, and for what is negative."""
    if isinstance(delay, str):
        return parse_duration_ms(delay)
    try:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    except (TypeError, ValueError, OverflowError):
        seconds = -1.0
    if not 0 <= seconds < 1e12 or isinstance(delay, bool):
        raise InvalidDuration(f"a delay of {delay} is not one; give it as '30s', as seconds, or as a timedelta")
    return round(seconds * 1000)
