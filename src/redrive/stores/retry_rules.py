"""The rules of auto-retry, and what they make of dead letters: when each is due.

The most specific rule counts: the group's, else the queue's, else `*`; without one, or with one that is switched off,
nothing is due. A rule of somebody who is limited to some queues counts for dead letters that were taken for these: by
where they were taken, not by the queue they name; others follow the next wider one.

A letter's due time is kept in its row, so that finding what is due reads an index; a changed rule computes it anew for
the letters it is about.

There may be millions of those. A change commits the rule and a row that says how far it is applied (`rule_changes`),
then goes through the letters by their numbers, a transaction for each piece. A process that is killed in between leaves
the row: the next that changes a rule goes on from there, and so does auto-retry before it takes anything for due
(`apply_changes`).

    who makes letters due (collects, ends a sending, imports)   reads the rules with `rules_to_decide_by`: none changes
                                                                before the letters are there
    who changes a rule                                          waits for all of those, so that the pieces see theirs
    a piece                                                     is alone among pieces, and reads the rules as they are
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from redrive.records import AuditEntry, RetryRule, covers, covers_all, storable
from redrive.stores.audit import acting_as, write_audit
from redrive.stores.database import Database, ReadTransaction, WriteTransaction
from redrive.stores.errors import StoreError

ALL = "*"
DECLARED_BY = "auto_retry:"
"""Who set the rules that a file declares, in the audit."""
_QUEUE = "queue:"
_GROUP = "group:"

_READ = (
    "SELECT scope, enabled, attempts, first_ms, ceiling_ms, settle_ms, is_declared, queues FROM rules ORDER BY scope"
)
_SET = """
INSERT INTO rules (scope, enabled, attempts, first_ms, ceiling_ms, settle_ms, is_declared, queues)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (scope) DO UPDATE SET enabled = excluded.enabled, attempts = excluded.attempts,
    first_ms = excluded.first_ms, ceiling_ms = excluded.ceiling_ms, settle_ms = excluded.settle_ms,
    is_declared = excluded.is_declared, queues = excluded.queues
"""
_REMOVE = "DELETE FROM rules WHERE scope = $1"

# Rows are locked in the order of their numbers, as everywhere. $3 and $4: the queue or the group.
_IN_PIECE = """
SELECT l.seq, l.queue, l.dlq, g.id, g.owner FROM letters AS l JOIN groups AS g ON g.seq = l.group_seq
WHERE l.seq > $1 AND l.seq <= $2 AND l.status = 'pending'
AND (CAST($3 AS TEXT) IS NULL OR l.queue = $3) AND (CAST($4 AS TEXT) IS NULL OR g.id = $4)
ORDER BY l.seq FOR UPDATE OF l
"""
_NEVER = """
UPDATE letters SET due_at_ms = NULL, version = version + 1 WHERE seq = ANY($1::bigint[]) AND due_at_ms IS NOT NULL
"""
# Attempts, first, ceiling, and the return from which on the ceiling counts: before it nothing can overflow.
_COUNTED = "(CASE WHEN returns > forgiven THEN returns - forgiven ELSE 0 END)"
_DUE = f"""
CASE WHEN {_COUNTED} < {{attempts}} THEN dead_at_ms + CASE WHEN {_COUNTED} >= {{doublings}}
    THEN CAST({{ceiling}} AS BIGINT)
    ELSE {{first}} * (CAST(1 AS BIGINT) << CAST({_COUNTED} AS INTEGER)) END END
"""
_DUE_ANEW = " ".join(
    (
        "UPDATE letters SET version = version + 1, due_at_ms =",
        _DUE.format(attempts="$2", first="$3", ceiling="$4", doublings="$5"),
        "WHERE seq = ANY($1::bigint[]) AND due_at_ms IS DISTINCT FROM",
        _DUE.format(attempts="$2", first="$3", ceiling="$4", doublings="$5"),
    )
)
PIECE = 5_000
"""Dead letters that are looked at in one transaction."""
_BEGIN = """
INSERT INTO rule_changes (scope, after_seq, until_seq, changed, at_ms, who, why, queues)
SELECT $1, 0, coalesce(max(seq), 0), 0, CAST($2 AS BIGINT), $3, $4, $5 FROM letters WHERE 1 = 1
ON CONFLICT (scope) DO UPDATE SET after_seq = 0, until_seq = excluded.until_seq, changed = 0, at_ms = excluded.at_ms,
    who = excluded.who, why = excluded.why, queues = excluded.queues
"""
_NEXT_CHANGE = """
SELECT scope, after_seq, until_seq, changed, who, why, queues FROM rule_changes ORDER BY at_ms, scope LIMIT 1 FOR UPDATE
"""
_PIECE_END = """
SELECT max(seq) FROM (SELECT seq FROM letters WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3) AS piece
"""
_PIECE_DONE = "UPDATE rule_changes SET after_seq = $2, changed = $3 WHERE scope = $1"
_CHANGE_DONE = "DELETE FROM rule_changes WHERE scope = $1"
_IS_CHANGING = "SELECT count(*) FROM rule_changes"


class RuleOutsideScope(StoreError):
    """A caller limited to some queues can't change a rule that a file, or a token with more queues, has set."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(
            f"the rule {scope} belongs to a file or to a token with more queues; set a rule for one of your own queues"
        )


class InvalidScope(StoreError):
    """A rule's scope that is none of `*`, `queue:NAME`, `group:ID`."""


@dataclass(frozen=True, slots=True)
class RuleBook:
    """All rules, to be asked about a dead letter."""

    rules: dict[str, RetryRule]

    def rule_for(self, queue: str, group_id: str, *, dlq: str, owner: str) -> RetryRule | None:
        """The rule that counts for a dead letter, switched on or off; None where there is none. `dlq` is where it was
        taken, `owner` whose that is (`records.owner_of`)."""
        for scope in (_GROUP + group_id, _QUEUE + queue, ALL):
            rule = self.rules.get(scope)
            if rule is not None and covers(rule.queues, dlq, owner):
                return rule
        return None


class Rules:
    """Reading and changing the rules."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> tuple[RetryRule, ...]:
        """Every rule, by scope."""
        async with self._database.autocommit() as tx:
            return tuple((await read_rules(tx)).rules.values())

    async def set(
        self, rule: RetryRule, *, now_ms: int, who: str = "", why: str = "", patience_s: float | None = None
    ) -> bool:
        """Makes or replaces a rule, and computes anew when the pending dead letters of its scope are due: for no longer
        than `patience_s`, if that is given. Whether all of it is done; if not, `apply_changes` does the rest. Raises
        `InvalidScope`, `RuleOutsideScope`."""
        _read_scope(rule.scope)
        values = (
            int(rule.enabled),
            rule.attempts,
            rule.first_ms,
            rule.ceiling_ms,
            rule.settle_ms,
            int(rule.is_declared),
            json.dumps(rule.queues),
        )
        async with self._database.write() as tx:
            await tx.rows(tx.dialect.alone_with_rules)
            _check_reach((await read_rules(tx)).rules.get(rule.scope), rule.queues)
            await tx.run(_SET, rule.scope, *values)
            await _begin_change(tx, rule.scope, rule.queues, "rule.set", now_ms=now_ms, who=who, why=why)
        return await self.apply_changes(now_ms=now_ms, patience_s=patience_s)

    async def declare(self, rules: Sequence[RetryRule], queues: Iterable[str], *, now_ms: int) -> tuple[str, ...]:
        """Brings the rules of these queues in line with what a file declares; returns the scopes of those it leaves
        alone, because a person set them otherwise. A declared rule that is declared no more is forgotten."""
        found = {one.scope: one for one in await self.all()}
        left: list[str] = []
        wanted = {one.scope: replace(one, is_declared=True) for one in rules}
        for scope, rule in wanted.items():
            there = found.get(scope)
            # One of somebody for some queues is none for the others.
            if there is None or there.queues or (there.is_declared and there != rule):
                with acting_as(""):
                    await self.set(rule, now_ms=now_ms, who=DECLARED_BY, why="as its file says")
            elif not there.is_declared and replace(there, is_declared=True) != rule:
                left.append(scope)
        for scope in (_QUEUE + name for name in queues):
            if scope in found and found[scope].is_declared and scope not in wanted:
                with acting_as(""):
                    await self.remove(scope, now_ms=now_ms, who=DECLARED_BY, why="its file says so no more")
        return tuple(left)

    async def remove(
        self,
        scope: str,
        *,
        now_ms: int,
        who: str = "",
        why: str = "",
        queues: tuple[str, ...] = (),
        patience_s: float | None = None,
    ) -> bool:
        """Forgets a rule; what it was about follows the next wider one, as with `set`. `queues`: those that the
        caller is limited to. Raises `RuleOutsideScope`."""
        async with self._database.write() as tx:
            await tx.rows(tx.dialect.alone_with_rules)
            there = (await read_rules(tx)).rules.get(scope)
            _check_reach(there, queues)
            if there is not None and await tx.run(_REMOVE, scope):
                await _begin_change(tx, scope, there.queues, "rule.removed", now_ms=now_ms, who=who, why=why)
        return await self.apply_changes(now_ms=now_ms, patience_s=patience_s)

    async def apply_changes(self, *, now_ms: int, patience_s: float | None = None) -> bool:
        """Applies changed rules to the dead letters that were there, from where somebody stopped; whether all of it is
        done. Any number may do it at once."""
        loop = asyncio.get_running_loop()
        until_s = None if patience_s is None else loop.time() + patience_s
        async with self._database.autocommit() as looking:
            if not await looking.value(_IS_CHANGING):
                return True
        while True:
            async with self._database.write() as tx:
                if not await _apply_piece(tx, now_ms=now_ms):
                    return True
            if until_s is not None and loop.time() >= until_s:
                return False


async def read_rules(tx: ReadTransaction) -> RuleBook:
    """All rules there are."""
    rules = {}
    for scope, enabled, attempts, first_ms, ceiling_ms, settle_ms, is_declared, queues in await tx.rows(_READ):
        rules[scope] = RetryRule(
            scope=scope,
            enabled=bool(enabled),
            attempts=attempts,
            first_ms=first_ms,
            ceiling_ms=ceiling_ms,
            settle_ms=settle_ms,
            is_declared=bool(is_declared),
            queues=tuple(json.loads(queues)),
        )
    return RuleBook(rules)


async def rules_to_decide_by(tx: WriteTransaction) -> RuleBook:
    """All rules, none of which changes before this transaction ends: for who writes down when letters are due."""
    await tx.rows(tx.dialect.share_rules)
    return await read_rules(tx)


def _check_reach(there: RetryRule | None, queues: tuple[str, ...]) -> None:
    if there is not None and not covers_all(queues, there.queues):
        raise RuleOutsideScope(there.scope)


async def _begin_change(
    tx: WriteTransaction, scope: str, queues: tuple[str, ...], action: str, *, now_ms: int, who: str, why: str
) -> None:
    unfinished = await tx.value("SELECT queues FROM rule_changes WHERE scope = $1", scope)
    if unfinished is not None:
        others = json.loads(unfinished)
        queues = tuple(dict.fromkeys((*others, *queues))) if queues and others else ()
    await tx.run(_BEGIN, scope, now_ms, storable(who), storable(why), json.dumps(queues))
    await write_audit(tx, AuditEntry(at_ms=now_ms, who=who, action=action, subject=scope, count=0, why=why))


async def _apply_piece(tx: WriteTransaction, *, now_ms: int) -> bool:
    """The next dead letters of a change; whether there was one."""
    await tx.rows(tx.dialect.alone_with_due_times)
    found = await tx.row(_NEXT_CHANGE)
    if found is None:
        return False
    scope, after_seq, until_seq, changed, who, why, queues = found
    end_seq = await tx.value(_PIECE_END, after_seq, until_seq, PIECE)
    if end_seq is not None:
        changed += await _compute_due(tx, scope, tuple(json.loads(queues)), await read_rules(tx), after_seq, end_seq)
    if end_seq is None or end_seq >= until_seq:
        await tx.run(_CHANGE_DONE, scope)
        await write_audit(
            tx, AuditEntry(at_ms=now_ms, who=who, action="rule.applied", subject=scope, count=changed, why=why)
        )
    else:
        await tx.run(_PIECE_DONE, scope, end_seq, changed)
    return True


async def _compute_due(
    tx: WriteTransaction, scope: str, queues: tuple[str, ...], book: RuleBook, after_seq: int, end_seq: int
) -> int:
    """Sets when the pending letters of a piece are due that a change of the rule with this scope, by somebody for these
    queues, is about; how many of them changed."""
    queue, group = _read_scope(scope)
    decided: defaultdict[str | None, list[int]] = defaultdict(list)
    for seq, of_queue, dlq, group_id, owner in await tx.rows(_IN_PIECE, after_seq, end_seq, queue, group):
        if not covers(queues, dlq, owner):
            continue
        rule = book.rule_for(of_queue, group_id, dlq=dlq, owner=owner)
        if rule is None or _how_specific(rule.scope) <= _how_specific(scope):
            decided[None if rule is None else rule.scope].append(seq)
    count = 0
    for by, seqs in decided.items():
        count += await _apply(tx, seqs, None if by is None else book.rules[by])
    return count


async def _apply(tx: WriteTransaction, seqs: list[int], rule: RetryRule | None) -> int:
    if rule is None or not rule.enabled:
        return await tx.run(_NEVER, seqs)
    doublings = 0
    while rule.first_ms << doublings < rule.ceiling_ms and doublings < 40:
        doublings += 1
    return await tx.run(_DUE_ANEW, seqs, rule.attempts, rule.first_ms, rule.ceiling_ms, doublings)


def _how_specific(scope: str) -> int:
    """The greater counts."""
    return 2 if scope.startswith(_GROUP) else 1 if scope.startswith(_QUEUE) else 0


def _read_scope(scope: str) -> tuple[str | None, str | None]:
    """The queue or the group of a scope."""
    if scope == ALL:
        return None, None
    if scope.startswith(_QUEUE) and scope != _QUEUE:
        return scope.removeprefix(_QUEUE), None
    if scope.startswith(_GROUP) and scope != _GROUP:
        return None, scope.removeprefix(_GROUP)
    raise InvalidScope(f"{scope!r} is no scope of a rule; write `*`, `queue:NAME` or `group:ID`")
