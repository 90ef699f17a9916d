"""Prints one line for each event, as it happens, and knows which orders are handled or parked."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from redrive.core import format_duration_ms
from redrive.demo.shop import OrderCase
from redrive.topology import RetryRoutes

GREEN, YELLOW, RED, DIM, BOLD = "32", "33", "31", "2", "1"


@dataclass(slots=True, kw_only=True)
class Story:
    """One order as the app knows it: what was decided about it last, and in which attempt."""

    case: OrderCase
    decision: str = "sent"
    reason: str | None = None
    attempt: int = 0


class Lines:
    """An observer of the runtime that prints, and remembers how far each order is."""

    def __init__(
        self,
        routes: RetryRoutes,
        *,
        now_s: Callable[[], float],
        write: Callable[[str], None],
        colour: bool,
    ) -> None:
        self._routes = routes
        self._now_s = now_s
        self._began_s = now_s()
        self._write = write
        self._colour = colour
        self._changed = asyncio.Event()
        self.stories: dict[str, Story] = {}

    def note(self, event: str, /, **fields: object) -> None:
        """The runtime's events; those that are about an order become a line."""
        if event == "runtime.decided":
            self._note_decision(fields)
        elif event in ("runtime.publish_failed", "client.disconnected"):
            self.say(f"{event}: {fields}", RED)

    def note_sent(self, message_id: str, case: OrderCase) -> None:
        """An order is with the broker."""
        self.stories.setdefault(message_id, Story(case=case))
        self._line(message_id, "sent", case.story, DIM)

    def paint(self, text: str, code: str) -> str:
        """Coloured, where somebody looks."""
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text

    def say(self, text: str, code: str = "") -> None:
        """A line of its own."""
        self._write(self.paint(text, code))

    async def wait_ended(self, timeout_s: float) -> bool:
        """Until every order is handled or parked, as far as the app knows; False if that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                while not all(one.decision in ("ack", "park") for one in self.stories.values()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _note_decision(self, fields: dict[str, object]) -> None:
        message_id = str(fields.get("message_id"))
        story = self.stories.get(message_id)
        if story is None:
            return
        decision, reason, attempt = str(fields.get("decision")), fields.get("reason"), fields.get("attempt")
        story.decision = decision
        story.reason = None if reason is None else str(reason)
        has_run = reason != "undecodable"
        if has_run and isinstance(attempt, int):
            story.attempt = attempt
        run = f"run {attempt} of {fields.get('attempts_max')}" if has_run else "no run"
        self._line(message_id, run, *self._text_and_colour(decision, fields))
        self._changed.set()

    def _text_and_colour(self, decision: str, fields: dict[str, object]) -> tuple[str, str]:
        error = str(fields.get("error") or "")
        delay_ms = fields.get("delay_ms")
        match decision:
            case "ack":
                return "handled", GREEN
            case "park":
                return f"{error} → parked in {self._routes.parking.queue} ({fields.get('reason')})", RED
            case "retry" if isinstance(delay_ms, int):
                wait = next((one for one in self._routes.waits if one.delay_ms >= delay_ms), None)
                place = self._routes.waits[-1] if wait is None else wait
                return f"{error} → waits {format_duration_ms(delay_ms)} in {place.queue}", YELLOW
            case _:
                return f"{error} → {decision}", YELLOW

    def _line(self, message_id: str, what: str, text: str, code: str) -> None:
        elapsed = f"{self._now_s() - self._began_s:6.2f}s"
        self._write(f"{self.paint(elapsed, DIM)}  {message_id:<9} {what:<11} {self.paint(text, code)}")
