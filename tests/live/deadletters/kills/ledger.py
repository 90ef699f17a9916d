"""Where every message is, and whether that is allowed. Pure: rows and messages come in, findings go out.

A message is known by the content id in its body; of byte-identical twins there are as many as were published.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from redrive.records import Status
from tests.live.deadletters.kills.cells import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A dead letter in the store."""

    id: str
    content: str
    status: Status
    redrives: int
    returns: int
    is_copy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A redriven copy on the broker."""

    content: str
    redriven_id: str
    count: int
    is_possible_duplicate: bool


@dataclass(slots=True, kw_only=True)
class Account:
    """What came of a cell. `problems` is empty if it holds."""

    cell: Cell
    published: int
    reached: bool = False
    """The worker was seen in its window when the kill came."""
    lost: list[str] = field(default_factory=list)
    marked: int = 0
    unmarked: list[str] = field(default_factory=list)
    doubts: int = 0
    forged: int = 0
    """Dead letters with forged headers among the published."""
    displaced: list[str] = field(default_factory=list)
    """Stored letters that a forged one took the place of."""
    attacks: int = 0
    """Calls of an operator with a scope beside the cell's queues."""
    reached_by_attack: list[str] = field(default_factory=list)
    """What that operator did to the cell's queues and letters, or saw of them."""
    survivor: str = ""
    """What a worker said that outlived what was killed and ended with an error."""
    notes: list[str] = field(default_factory=list)
    """Whatever else is not as it must be."""

    def problems(self) -> list[str]:
        """What breaks a promise."""
        found = [f"{content} is lost" for content in self.lost]
        found += [f"{content} is there twice, and nothing says so" for content in self.unmarked]
        found += [f"{id} was displaced by a forged letter" for id in self.displaced]
        found += [f"reached from outside of its scope: {what}" for what in self.reached_by_attack]
        if not self.reached:
            found.append("nothing was killed: the window was never reached")
        if self.marked and not self.cell.may_double:
            found.append(f"{self.marked} marked duplicates outside the documented windows")
        if self.doubts and not self.cell.may_doubt:
            found.append(f"{self.doubts} doubts outside the documented windows")
        return found + self.notes


def account_stored(account: Account, published: Counter[str], rows: Iterable[Row], left: Iterable[str]) -> None:
    """Every message is in the store once, or in the queue. `left`: what is in the dead-letter queue in the end."""
    kept = list(rows)
    originals = Counter(row.content for row in kept if not row.is_copy)
    copies = Counter(row.content for row in kept if row.is_copy)
    queued = Counter(left)
    for content in sorted(published | originals | copies | queued):
        have = originals[content] + copies[content] + queued[content]
        surplus = have - published[content]
        account.lost += [content] * -surplus
        marked = min(max(surplus, 0), copies[content])
        account.marked += marked
        account.unmarked += [content] * (surplus - marked)


def account_sent(account: Account, rows: Sequence[Row], copies: Iterable[Copy]) -> None:
    """After recovery every row says the truth about its copy: none for pending ones, one for retrying ones, and for
    those in doubt one or none. What a status claims and the broker does not have would be lost by and by."""
    found: defaultdict[str, list[Copy]] = defaultdict(list)
    for copy in copies:
        found[copy.redriven_id].append(copy)
    for row in rows:
        sent = found.pop(row.id, [])
        match row.status:
            case Status.PENDING | Status.FAILED:
                account.unmarked += [row.content] * len(sent)
            case Status.RETRYING:
                if not sent:
                    account.lost.append(row.content)
                account.unmarked += [row.content] * (len(sent) - 1)
            case Status.IN_DOUBT:
                account.doubts += 1
                account.unmarked += [row.content] * (len(sent) - 1)
            case other:
                account.notes.append(f"{row.content} is {other}, which nobody asked for")
        if any(copy.count != row.redrives for copy in sent):
            account.notes.append(f"{row.content} was redriven {row.redrives} times, its copy says {sent[0].count}")
    account.notes += [f"a copy of {id}, which no row is" for id in found]


def account_resolved(account: Account, rows: Sequence[Row], copies: Iterable[Copy]) -> None:
    """After every doubt was resolved: each message was sent; a second copy says that it may be one."""
    found: defaultdict[str, list[Copy]] = defaultdict(list)
    for copy in copies:
        found[copy.redriven_id].append(copy)
    for row in rows:
        sent = found[row.id]
        if not sent and row.content not in account.lost:
            account.lost.append(row.content)
        unmarked = [copy for copy in sent if not copy.is_possible_duplicate]
        account.marked += max(0, len(sent) - max(1, len(unmarked)))
        if len(unmarked) > 1 and row.content not in account.unmarked:
            account.unmarked += [row.content] * (len(unmarked) - 1)
        if row.status not in (Status.RETRYING, Status.RESOLVED):
            account.notes.append(f"{row.content} is {row.status} after every doubt was resolved")
