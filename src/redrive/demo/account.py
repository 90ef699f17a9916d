"""The account: where every order is, asked of the broker and compared with what the app believes.

The broker is asked for the messages in the parking queue and for the depth of every other queue of the shop. An order
counts as handled only if the app has acked it and the broker has it nowhere; as parked only if the broker shows it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from redrive import wire
from redrive.client import Client
from redrive.core import headers, read_count
from redrive.demo.lines import Story
from redrive.topology import RetryRoutes

HANDLED, PARKED = "handled", "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountEntry:
    """One order's line: `place` is where the broker has it, `problem` what does not add up."""

    message_id: str
    story: str
    end: str
    place: str = ""
    reason: str = ""
    attempts: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Every order's line, and how many messages are in queues that should be empty."""

    entries: tuple[AccountEntry, ...]
    left_over: Mapping[str, int]
    strangers: tuple[str, ...] = ()

    @property
    def is_balanced(self) -> bool:
        """Whether every message is where it should be, and nothing is anywhere else."""
        return not self.left_over and not self.strangers and not any(one.problem for one in self.entries)

    def count(self, end: str) -> int:
        """How many orders ended so."""
        return sum(1 for one in self.entries if one.end == end)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedOrder:
    """A parked message as the broker shows it."""

    message_id: str
    reason: str
    retries: int


async def take_account(client: Client, routes: RetryRoutes, stories: Mapping[str, Story]) -> Account:
    """Asks the broker; changes nothing there."""
    parked = await _peek_all(client, routes.parking.queue)
    channel = await client.channel()
    left_over = {}
    for queue in (routes.queue, *(wait.queue for wait in routes.waits)):
        ready = (await channel.declare_queue(queue, passive=True)).messages_ready
        if ready:
            left_over[queue] = ready
    await channel.close()
    copies = Counter(one.message_id for one in parked)
    by_id = {one.message_id: one for one in parked}
    entries = tuple(
        _entry(message_id, story, by_id.get(message_id), copies[message_id], routes.parking.queue)
        for message_id, story in stories.items()
    )
    strangers = tuple(one.message_id for one in parked if one.message_id not in stories)
    return Account(entries=entries, left_over=left_over, strangers=strangers)


def _entry(message_id: str, story: Story, letter: ParkedOrder | None, copies: int, place: str) -> AccountEntry:
    wanted = story.case.ends
    if letter is not None:
        problem = "" if wanted == PARKED else f"should be {wanted}"
        if copies > 1:
            problem = f"is there {copies} times"
        elif story.decision == "ack":
            problem = "is parked and was handled too"
        return AccountEntry(
            message_id=message_id,
            story=story.case.story,
            end=PARKED,
            place=place,
            reason=letter.reason,
            attempts=story.attempt,
            problem=problem,
        )
    if story.decision == "ack":
        problem = "" if wanted == HANDLED else f"should be {wanted}"
        return AccountEntry(
            message_id=message_id, story=story.case.story, end=HANDLED, attempts=story.attempt, problem=problem
        )
    return AccountEntry(
        message_id=message_id,
        story=story.case.story,
        end="missing",
        attempts=story.attempt,
        problem=f"neither acked nor parked; the app's last word about it: {story.decision}",
    )


async def _peek_all(client: Client, queue: str) -> list[ParkedOrder]:
    """Every message of a queue; they are requeued when the channel closes."""
    channel = await client.channel()
    found = []
    while (got := await channel.get_message(queue)) is not None:
        properties = wire.Properties(got.header)
        found.append(
            ParkedOrder(
                message_id=str(properties.message_id),
                reason=str(properties.header(headers.REASON)),
                retries=read_count(properties.header(headers.RETRY_COUNT)),
            )
        )
    await channel.close()
    return found


def render_account(account: Account) -> list[str]:
    """The table, one line a row."""
    head = ("order", "what is the matter", "end", "attempts", "where")
    rows = [head]
    for one in account.entries:
        where = f"{one.place} ({one.reason})" if one.place else ""
        rows.append((one.message_id, one.story, one.end, str(one.attempts), f"{where}  {one.problem}".strip()))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("─" * width for width in widths))
    lines += [f"left in {queue}: {count}" for queue, count in account.left_over.items()]
    lines += [f"parked, but never sent: {message_id}" for message_id in account.strangers]
    return lines
