"""The rules of auto-retry, and what they make of dead letters: when each is due.

The most specific rule counts: the group's, else the queue's, else `*`; without one, or with one that is switched off,
nothing is due. A letter's due time is kept in its row, so that finding what is due reads an index; a changed rule
computes it anew for the letters it is about.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from redrive.records import AuditEntry, RetryRule
from redrive.stores.audit import note
from redrive.stores.database import Database, Reading, Writing
from redrive.stores.errors import StoreError

ALL = "*"
DECLARED_BY = "auto_retry:"
"""Who set the rules that a file declares, in the audit."""
_QUEUE = "queue:"
_GROUP = "group:"

_READ = "SELECT scope, enabled, attempts, first_ms, ceiling_ms, settle_ms, is_declared FROM rules ORDER BY scope"
_SET = """
INSERT INTO rules (scope, enabled, attempts, first_ms, ceiling_ms, settle_ms, is_declared)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (scope) DO UPDATE SET enabled = excluded.enabled, attempts = excluded.attempts,
    first_ms = excluded.first_ms, ceiling_ms = excluded.ceiling_ms, settle_ms = excluded.settle_ms,
    is_declared = excluded.is_declared
"""
_REMOVE = "DELETE FROM rules WHERE scope = $1"

# $1 and $2: the queue or the group; $3 and $4: the queues and groups that have rules of their own and are left alone.
_IN_SCOPE = """
status = 'pending' AND (CAST($1 AS TEXT) IS NULL OR queue = $1)
AND (CAST($2 AS TEXT) IS NULL OR group_seq IN (SELECT seq FROM groups WHERE id = $2))
AND queue <> ALL($3::text[]) AND group_seq NOT IN (SELECT seq FROM groups WHERE id = ANY($4::text[]))
"""
_NEVER = " ".join(
    ("UPDATE letters SET due_at_ms = NULL, version = version + 1 WHERE due_at_ms IS NOT NULL AND", _IN_SCOPE)
)
# $5 attempts, $6 first, $7 ceiling, $8 the return from which on the ceiling counts: before it nothing can overflow.
_COUNTED = "(CASE WHEN returns > forgiven THEN returns - forgiven ELSE 0 END)"
_DUE = f"""
CASE WHEN {_COUNTED} < $5 THEN dead_at_ms + CASE WHEN {_COUNTED} >= $8 THEN CAST($7 AS BIGINT)
    ELSE $6 * (CAST(1 AS BIGINT) << CAST({_COUNTED} AS INTEGER)) END END
"""
_DUE_ANEW = " ".join(
    (
        "UPDATE letters SET version = version + 1, due_at_ms =",
        _DUE,
        "WHERE",
        _IN_SCOPE,
        "AND due_at_ms IS DISTINCT FROM",
        _DUE,
    )
)


class InvalidScope(StoreError):
    """A rule's scope that is none of `*`, `queue:NAME`, `group:ID`."""


@dataclass(frozen=True, slots=True)
class RuleBook:
    """All rules, to be asked about a dead letter."""

    rules: dict[str, RetryRule]

    def rule_for(self, queue: str, group_id: str) -> RetryRule | None:
        """The rule that counts for a dead letter, switched on or off; None where there is none."""
        for scope in (_GROUP + group_id, _QUEUE + queue, ALL):
            if scope in self.rules:
                return self.rules[scope]
        return None


class Rules:
    """Reading and changing the rules."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> tuple[RetryRule, ...]:
        """Every rule, by scope."""
        async with self._database.look() as tx:
            return tuple((await read_rules(tx)).rules.values())

    async def set(self, rule: RetryRule, *, now_ms: int, who: str = "", why: str = "") -> None:
        """Makes or replaces a rule, and computes anew when the pending dead letters of its scope are due. Raises
        `InvalidScope`."""
        _read_scope(rule.scope)
        values = (
            int(rule.enabled),
            rule.attempts,
            rule.first_ms,
            rule.ceiling_ms,
            rule.settle_ms,
            int(rule.is_declared),
        )
        async with self._database.write() as tx:
            await tx.run(_SET, rule.scope, *values)
            await self._changed(tx, rule.scope, "rule.set", now_ms=now_ms, who=who, why=why)

    async def declare(self, rules: Sequence[RetryRule], queues: Iterable[str], *, now_ms: int) -> tuple[str, ...]:
        """Brings the rules of these queues in line with what a file declares; returns the scopes of those it leaves
        alone, because a person set them otherwise. A declared rule that is declared no more is forgotten."""
        found = {one.scope: one for one in await self.all()}
        left: list[str] = []
        wanted = {one.scope: replace(one, is_declared=True) for one in rules}
        for scope, rule in wanted.items():
            there = found.get(scope)
            if there is None or (there.is_declared and there != rule):
                await self.set(rule, now_ms=now_ms, who=DECLARED_BY, why="as its file says")
            elif not there.is_declared and replace(there, is_declared=True) != rule:
                left.append(scope)
        for scope in (_QUEUE + name for name in queues):
            if scope in found and found[scope].is_declared and scope not in wanted:
                await self.remove(scope, now_ms=now_ms, who=DECLARED_BY, why="its file says so no more")
        return tuple(left)

    async def remove(self, scope: str, *, now_ms: int, who: str = "", why: str = "") -> None:
        """Forgets a rule; what it was about follows the next wider one."""
        async with self._database.write() as tx:
            if await tx.run(_REMOVE, scope):
                await self._changed(tx, scope, "rule.removed", now_ms=now_ms, who=who, why=why)

    async def _changed(self, tx: Writing, scope: str, action: str, *, now_ms: int, who: str, why: str) -> None:
        book = await read_rules(tx)
        count = await _compute_due(tx, scope, book)
        await note(tx, AuditEntry(at_ms=now_ms, who=who, action=action, subject=scope, count=count, why=why))


async def read_rules(tx: Reading) -> RuleBook:
    """All rules there are."""
    rules = {}
    for scope, enabled, attempts, first_ms, ceiling_ms, settle_ms, is_declared in await tx.rows(_READ):
        rules[scope] = RetryRule(
            scope=scope,
            enabled=bool(enabled),
            attempts=attempts,
            first_ms=first_ms,
            ceiling_ms=ceiling_ms,
            settle_ms=settle_ms,
            is_declared=bool(is_declared),
        )
    return RuleBook(rules)


async def _compute_due(tx: Writing, scope: str, book: RuleBook) -> int:
    """Sets when the pending letters that `scope` alone decides about are due; how many of them changed."""
    queue, group = _read_scope(scope)
    groups = [one.removeprefix(_GROUP) for one in book.rules if one.startswith(_GROUP) and group is None]
    queues = [one.removeprefix(_QUEUE) for one in book.rules if one.startswith(_QUEUE) and scope == ALL]
    if scope in book.rules:
        rules: list[tuple[str | None, RetryRule | None]] = [(queue, book.rules[scope])]
    elif group is not None:
        # Letters of a group may have died in several queues, each with a rule of its own.
        rows = await tx.rows(
            "SELECT DISTINCT queue FROM letters WHERE group_seq IN (SELECT seq FROM groups WHERE id = $1)", group
        )
        rules = [(row[0], book.rule_for(row[0], group)) for row in rows]
    else:
        rules = [(queue, book.rules.get(ALL))]
    count = 0
    for of_queue, rule in rules:
        count += await _apply(tx, of_queue, group, queues, groups, rule)
    return count


async def _apply(
    tx: Writing, queue: str | None, group: str | None, queues: list[str], groups: list[str], rule: RetryRule | None
) -> int:
    scope = (queue, group, queues, groups)
    if rule is None or not rule.enabled:
        return await tx.run(_NEVER, *scope)
    doublings = 0
    while rule.first_ms << doublings < rule.ceiling_ms and doublings < 40:
        doublings += 1
    return await tx.run(_DUE_ANEW, *scope, rule.attempts, rule.first_ms, rule.ceiling_ms, doublings)


def _read_scope(scope: str) -> tuple[str | None, str | None]:
    """The queue or the group of a scope."""
    if scope == ALL:
        return None, None
    if scope.startswith(_QUEUE) and scope != _QUEUE:
        return scope.removeprefix(_QUEUE), None
    if scope.startswith(_GROUP) and scope != _GROUP:
        return None, scope.removeprefix(_GROUP)
    raise InvalidScope(f"{scope!r} is no scope of a rule; write `*`, `queue:NAME` or `group:ID`")
