"""Where every message is in the end, by its id, and whether that is allowed. Pure: rows and copies come in, problems go
out.

A message is in its dead-letter queue or in the store. One that the store says was sent lies in its target once; a
further copy is allowed only to a dead letter that was in doubt, and says so in a header.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from redrive.records import Status

TOLD_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A dead letter in the store."""

    id: str
    message_id: str
    status: Status
    redrives: int
    is_copy: bool
    """Marked as a second one of a message that is stored already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A redriven copy in a target."""

    message_id: str
    redriven_id: str
    is_possible_duplicate: bool


@dataclass(slots=True, kw_only=True)
class Account:
    """The sums, and what breaks a promise."""

    published: int
    stored: int = 0
    left: int = 0
    sent: int = 0
    resolved: int = 0
    in_doubt: int = 0
    marked: int = 0
    """Copies that say that they may be duplicates, and are."""
    problems: list[str] = field(default_factory=list)


def account(
    published: Sequence[str],
    left: Iterable[str],
    rows: Sequence[Row],
    copies: Sequence[Copy],
    *,
    doubted: Collection[str] = (),
) -> Account:
    """Every message by its id. `left`: what is still in dead-letter queues; `doubted`: dead letters that were in doubt
    and were sent again."""
    queued = Counter(left)
    made = Account(published=len(published), stored=len(rows), left=queued.total())
    by_message: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_message[row.message_id].append(row)
    for message_id in sorted({*published, *by_message, *queued}):
        found = by_message[message_id]
        originals = sum(1 for row in found if not row.is_copy) + queued[message_id]
        if not found and not queued[message_id]:
            made.problems.append(f"{message_id} is lost")
        elif originals > 1:
            made.problems.append(f"{message_id} is there {originals} times, and nothing says so")
    by_row: defaultdict[str, list[Copy]] = defaultdict(list)
    for copy in copies:
        by_row[copy.redriven_id].append(copy)
    for row in rows:
        _account_sent(made, row, by_row.pop(row.id, []), is_doubted=row.id in doubted)
    made.problems += [f"a copy of {id}, which no dead letter is" for id in by_row]
    del made.problems[TOLD_MAX:]
    return made


def _account_sent(made: Account, row: Row, sent: Sequence[Copy], *, is_doubted: bool) -> None:
    unmarked = [copy for copy in sent if not copy.is_possible_duplicate]
    made.marked += max(0, len(sent) - 1)
    if len(unmarked) > 1:
        made.problems.append(f"{row.message_id} was sent {len(unmarked)} times, and nothing says so")
    if len(unmarked) < len(sent) and not is_doubted:
        made.problems.append(f"{row.message_id} has a marked copy, and was never in doubt")
    if any(copy.message_id != row.message_id for copy in sent):
        made.problems.append(f"{row.message_id} was sent under another id")
    match row.status:
        case Status.RETRYING:
            made.sent += 1
            if not sent:
                made.problems.append(f"{row.message_id} is said to be sent, and its copy is nowhere")
        case Status.RESOLVED:
            # By people: while it was pending, or when nobody knew whether its copy had arrived.
            made.resolved += 1
            if sent and not row.redrives:
                made.problems.append(f"{row.message_id} was resolved unsent, and has a copy")
        case Status.IN_DOUBT:
            made.in_doubt += 1
        case _:
            if sent:
                made.problems.append(f"{row.message_id} is {row.status}, and was sent")
