"""From what a request names to the dead letters that are meant: always within the queues of whoever asks.

An id outside of them is as if it did not exist; a filter gets the scope's terms added, so that the store's index finds
only what may be found.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import Request

from redrive.admin.access import Caller, View
from redrive.admin.access.guard import route_path
from redrive.admin.problems import Problem, forbidden, not_found
from redrive.admin.services import Services, services_of
from redrive.records import (
    AuditEntry,
    BodyTerm,
    DeadLetter,
    ErrorTerm,
    Filter,
    Group,
    HeaderTerm,
    NameTerm,
    Selection,
    Term,
    WordsTerm,
    format_filter,
    parse_filter,
)

GONE = "there is no such dead letter"
_LOOKED_UP = 1_000
_ID_CHARACTERS_MAX = 64
_NAMES_FEW = 50
"""So many names need no turn of their own."""
_PLAIN = re.compile(r"\d+ (by id|dead letters)|all|due|everything|")
_NOBODY = "-"
"""An id that no dead letter has: what is left of a selection of which the caller may see nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A selection within the caller's scope, and the ids that were left out of it."""

    selection: Selection
    outside: tuple[str, ...] = ()


def is_id(text: str) -> bool:
    """Whether a text could be an id at all. The store is not asked about anything else."""
    return text.isascii() and text.isalnum() and len(text) <= _ID_CHARACTERS_MAX


async def find_letter(services: Services, caller: Caller, id: str) -> DeadLetter:
    """The dead letter with this id. Raises `Problem` 404, also for one of another queue, which the audit tells."""
    letter = await services.store.letters.get(id) if is_id(id) else None
    if letter is None:
        raise not_found("dead letter", id)
    await check_seen(services, caller, letter)
    return letter


async def check_seen(services: Services, caller: Caller, letter: DeadLetter) -> None:
    """Raises `Problem` 404 for a dead letter outside of the caller's queues."""
    if not caller.sees(letter):
        await services.refusals.outside(caller, "dead letter", services, id=letter.id, queue=letter.queue)
        raise not_found("dead letter", letter.id)


async def note_read(services: Services, caller: Caller, view: View, subject: str, queue: str) -> None:
    """The audit tells who read a payload, where that was asked for. It is noted before it is shown."""
    if not services.settings.audit_reads or not view.sees_payloads:
        return
    entry = AuditEntry(
        at_ms=services.clock_ms(),
        who=caller.who,
        action="payload.read",
        subject=subject,
        count=1,
        why="",
        detail={"queue": queue},
        token_id=caller.token_id,
    )
    await services.store.audit.add(entry)


async def find_group(services: Services, caller: Caller, id: str) -> Group:
    """The group with this id. Raises `Problem` 404, also for one of another failed queue."""
    group = await services.store.groups.get(id) if is_id(id) else None
    if group is None:
        raise not_found("group", id)
    if not caller.may_use(group.owner):
        await services.refusals.outside(caller, "group", services, id=group.id, queue=group.queue)
        raise not_found("group", id)
    return group


async def filter_for(request: Request, caller: Caller, view: View, q: str, *, terms: Sequence[Term] = ()) -> Filter:
    """What a text asks, with further `terms`, within the scope. Raises `InvalidFilter`, `Problem` 403 where it asks
    about what the caller may not see."""
    asked = parse_filter(q, now_ms=services_of(request).clock_ms())
    reason = view.forbids(asked)
    if reason is not None:
        raise await forbade(request, caller, reason)
    return Filter((*caller.scope_terms(), *terms, *asked.terms))


async def forbade(request: Request, caller: Caller, reason: str) -> Problem:
    """403 for this reason, which is noted in the audit."""
    services = services_of(request)
    await services.refusals.forbade(caller, f"{request.method} {route_path(request)}", reason, services)
    return forbidden(reason)


def told_text(view: View, text: str) -> str:
    """What was chosen, as an operation or the audit has it: a count as it is, a filter if it may be seen.

    What looks like an id is no exception: somebody may have searched for a card's sixteen digits.
    """
    return text if _PLAIN.fullmatch(text) else view.filter_text(text)


async def choose(
    request: Request,
    caller: Caller,
    view: View,
    *,
    ids: Sequence[str] | None,
    q: str,
    limit: int | None,
    include_in_doubt: bool = False,
    terms: Sequence[Term] = (),
    hidden_terms: Sequence[Term] = (),
) -> Chosen:
    """The dead letters that a request means: the `ids`, or else what `q` and `terms` leave.

    `hidden_terms` hold too and are not told in the selection's text. Raises as `filter_for` does.
    """
    if ids is not None:
        named = tuple(dict.fromkeys(ids))
        seen = await _visible(services_of(request), caller, named)
        outside = tuple(id for id in named if id not in seen)
        await _tell_outside(services_of(request), caller, outside)
        kept = tuple(id for id in named if id in seen)
        return Chosen(selection=Selection(ids=kept or (_NOBODY,), limit=limit), outside=outside)
    asked = await filter_for(request, caller, view, q, terms=(*terms, *hidden_terms))
    # By the queues of the token: which dead-letter queues are theirs may change, and what was asked is the same.
    scope = (NameTerm(field="queue", values=caller.queues),) if caller.queues else ()
    said = format_filter(Filter((*scope, *terms)))
    text = f"{said} {q.strip()}".strip()
    return Chosen(
        selection=Selection(filter=asked, filter_text=text or "all", limit=limit, includes_in_doubt=include_in_doubt)
    )


@asynccontextmanager
async def taking_turns(request: Request, caller: Caller, filter: Filter | None) -> AsyncIterator[None]:
    """Where no index answers, dead letters are looked at one by one, which takes one of the database's few connections
    for long: then a token does so once at a time, and few tokens do. Raises `Problem` 429."""
    scope = caller.scope_terms()  # in every filter, and none of the caller's choice
    terms = [] if filter is None else [term for term in filter.terms if term not in scope]
    if not any(isinstance(term, BodyTerm | HeaderTerm | ErrorTerm | WordsTerm) or _is_wide(term) for term in terms):
        yield
        return
    services = services_of(request)
    async with services.shares.searching(caller.token_id, services.settings):
        yield


def _is_wide(term: Term) -> bool:
    """Whether names are compared with all there are."""
    return isinstance(term, NameTerm) and (len(term.values) > _NAMES_FEW or any("*" in one for one in term.values))


async def _tell_outside(services: Services, caller: Caller, outside: Sequence[str]) -> None:
    """The audit tells of the first of the ids that names a dead letter of other queues."""
    able = tuple(id for id in outside if is_id(id))[:_LOOKED_UP]
    if not caller.queues or not able:
        return
    asked = Filter((NameTerm(field="id", values=able),))
    page = await services.store.letters.page(asked, limit=1, now_ms=services.clock_ms())
    for letter in page.letters:
        await services.refusals.outside(caller, "dead letter", services, id=letter.id, queue=letter.queue)


async def _visible(services: Services, caller: Caller, ids: Sequence[str]) -> frozenset[str]:
    """Those of the ids that name a dead letter of the caller's queues; without a scope whatever may be an id."""
    able = [id for id in ids if is_id(id)]
    if not caller.queues:
        return frozenset(able)
    seen: set[str] = set()
    for start in range(0, len(able), _LOOKED_UP):
        chunk = tuple(able[start : start + _LOOKED_UP])
        asked = Filter((NameTerm(field="id", values=chunk), *caller.scope_terms()))
        cursor = None
        while True:
            page = await services.store.letters.page(asked, limit=_LOOKED_UP, cursor=cursor, now_ms=services.clock_ms())
            seen.update(letter.id for letter in page.letters)
            cursor = page.next_cursor
            if cursor is None:
                break
    return frozenset(seen)
