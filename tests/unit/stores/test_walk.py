"""A filter finds exactly the letters it means, each once, in pages of any size, on both databases."""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.records import (
    BodyTerm,
    DeadLetter,
    ErrorTerm,
    Filter,
    FlagTerm,
    HeaderTerm,
    NameTerm,
    NumberTerm,
    Selection,
    Status,
    Term,
    TimeTerm,
    WordsTerm,
    matches,
)
from redrive.stores import ExportedLetter, InvalidCursor, Store
from redrive.stores.letters import letters
from redrive.stores.message_contents import headers_of
from redrive.stores.search import index_choice as drivers
from redrive.stores.search import walk as searching
from redrive.stores.search.filter_sql import COLUMNS
from redrive.stores.search.full_text import forget_words
from redrive.stores.search.walk import find_matching
from tests.selections.auditor import as_if_many
from tests.unit.stores.arrivals import database_of
from tests.unit.stores.conftest import Run
from tests.unit.stores.made_letters import NOW_MS, make_exported, make_letter, on_store, put

NAMES = ("orders", "orders.eu", "or[d]ers?", "or_ers%", "ORDERS", "parked", "*", "")
TEXTS = ("alpha", "Bravo", "alpha bravo", "orders.created", "Zürich", "42", "naïve_word", "--")
VALUES = ("alpha", "Bravo", "42", "true", "null", "4*", "*", "Zürich")
ERRORS = (None, "TimeoutError", "Key_Error", "orders")
Choose: TypeAlias = Callable[[Sequence[Any]], Any]
SETTINGS = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def make_any(choose: Choose, number: int) -> ExportedLetter:
    """A letter whose every field is chosen from a few values, so that filters meet and miss them."""
    queue, error = choose(NAMES), choose(ERRORS)
    letter = make_letter(
        number,
        status=choose(list(Status)),
        vhost=choose(("/", "other")),
        queue=queue,
        dlq=choose(NAMES),
        exchange=choose(NAMES),
        routing_key=choose(NAMES),
        error_type=error,
        status_code=choose((None, 404, 503)),
        attempts=choose((None, 0, 1, 2)),
        message_id=choose((None, *NAMES)),
        correlation_id=choose((None, *NAMES)),
        type=choose((None, *NAMES)),
        service=choose((None, *NAMES)),
        group_id=f"{queue}/{error}",
        # Few moments, so that letters that died at once are kept apart by their number.
        dead_at_ms=NOW_MS + choose((0, 1, 2)),
        redrives=choose((0, 1, 2)),
        returns=choose((0, 1, 2)),
        size_bytes=choose((0, 1, 2)),
        is_poison=choose((False, True)),
        is_edited=choose((False, True)),
        due_at_ms=choose((None, NOW_MS, NOW_MS + 1)),
        copy_of=choose((None, "x")),
        operation_id=choose((None, *NAMES)),
    )
    body = {name: choose((*TEXTS, 42, True, ["alpha", 42])) for name in choose(("", "a", "b", "ab"))}
    headers = {f"x-{name}": choose(TEXTS) for name in choose(("", "a", "b", "ab"))}
    return make_exported(letter, body=body, headers=headers, title=f"{error}: in {queue}")


def make_terms() -> list[Term]:
    """Every kind of term with every value that means something to the letters above."""
    no_names = {"id", "status", "group", "error_type"}
    usual: tuple[str, ...] = (*NAMES, "or*", "*ers", "*[d]*", "*_*", "no such")
    names = dict.fromkeys(set(COLUMNS) - no_names, usual)
    names["status"] = tuple(status.value for status in Status)
    names["group"] = ("orders/None", "orders/*", "*/TimeoutError", "ORDERS/orders")
    names["error_type"] = ("TimeoutError", "*_Error", "*")
    names["id"] = (make_letter(1).id, "*1", "no such")
    bounds = [(None, 1), (1, None), (1, 2), (0, 1), (2**70, None), (None, 2**70), (None, None), (2, 0)]
    terms: list[Term] = []
    for negated in (False, True):
        for field in sorted(names):
            values = names[field]
            each: Any = field
            terms += [NameTerm(field=each, values=(value,), negated=negated) for value in values]
            terms += [NameTerm(field=each, values=values[start : start + 3], negated=negated) for start in (0, 1)]
        for moment in ("dead", "collected", "updated"):
            each = moment
            for low, high in bounds:
                from_ms, until_ms = (None if bound is None else NOW_MS + bound for bound in (low, high))
                terms.append(TimeTerm(field=each, from_ms=from_ms, until_ms=until_ms, negated=negated))
        for number in ("attempts", "redrives", "returns", "size", "status_code"):
            each = number
            terms += [NumberTerm(field=each, low=low, high=high, negated=negated) for low, high in bounds]
        terms += [FlagTerm(flag=mark, negated=negated) for mark in ("poison", "edited", "copy", "due")]
        terms += [ErrorTerm(text=text, negated=negated) for text in ("timeout", "KEY_", "in or", "orders", "%")]
        for words in (*((text,) for text in TEXTS), ("alp",), ("zurich",), ("bravo", "alpha"), ("alpha", "br")):
            terms += [
                WordsTerm(words=words, is_phrase=is_phrase, is_prefix=is_prefix, negated=negated)
                for is_phrase in (False, True)
                for is_prefix in (False, True)
            ]
        for value in VALUES:
            terms += [
                BodyTerm(path=path, value=value, negated=negated) for path in (("a",), ("*",), ("a", "0"), ("b", "*"))
            ]
            terms += [HeaderTerm(name=name, value=value, negated=negated) for name in ("x-a", "X-B", "x-death")]
    return terms


TERMS = st.sampled_from(make_terms())


def holds(filter: Filter, each: ExportedLetter) -> bool:
    """The meaning of a filter, without any database."""
    content = each.content
    return matches(filter, each.letter, headers=headers_of(content.properties), body=content.body, now_ms=NOW_MS)


async def all_pages(store: Store, filter: Filter, *, limit: int, newest_first: bool = True) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    cursor = None
    while True:
        page = await store.letters.page(filter, limit=limit, cursor=cursor, newest_first=newest_first, now_ms=NOW_MS)
        assert len(page.letters) <= limit
        found += page.letters
        cursor = page.next_cursor
        if cursor is None:
            assert not page.is_partial
            return found


async def check_page(
    store: Store, everything: list[ExportedLetter], filter: Filter, limit: int, newest_first: bool
) -> set[str]:
    """The pages hold what the filter means, and nothing twice; the ids."""
    expected = {each.letter.id for each in everything if holds(filter, each)}
    found = await all_pages(store, filter, limit=limit, newest_first=newest_first)
    ids = [letter.id for letter in found]
    assert len(ids) == len(set(ids)), "a letter is on two pages"
    assert set(ids) == expected, filter
    if not any(isinstance(term, WordsTerm | BodyTerm | HeaderTerm) for term in filter.terms):
        assert found == sorted(found, key=lambda letter: (letter.dead_at_ms, letter.id), reverse=newest_first)
    return expected


async def check(store: Store, everything: list[ExportedLetter], filter: Filter, limit: int, newest_first: bool) -> None:
    """Pages, counts and frozen selections all hold what the filter means."""
    expected = await check_page(store, everything, filter, limit, newest_first)
    assert await store.letters.count(filter, now_ms=NOW_MS) == len(expected)
    statuses = [Status.PENDING, Status.FAILED]
    async with database_of(store).read() as tx:
        seqs = await find_matching(tx, filter, statuses=statuses, limit=None, now_ms=NOW_MS)
        first = await find_matching(tx, filter, statuses=statuses, limit=2, now_ms=NOW_MS)
        rows = await tx.rows("SELECT seq, id, dead_at_ms FROM letters")
    by_seq = {row[0]: (row[2], row[0], row[1]) for row in rows}
    assert {by_seq[seq][2] for seq in seqs} == {
        each.letter.id for each in everything if each.letter.id in expected and each.letter.status in statuses
    }
    assert seqs == sorted(seqs, key=lambda seq: by_seq[seq])
    assert first == seqs[:2]


async def clear(store: Store) -> None:
    async with database_of(store).write() as tx:
        seqs = [row[0] for row in await tx.rows("SELECT seq FROM letters")]
        await forget_words(tx, seqs)
        for table in ("letters", "contents", "happenings", "tallies", "groups", "activity", "audit"):
            await tx.run(f"DELETE FROM {table}")  # noqa: S608


@pytest.mark.slow
def test_every_term_alone_and_many_in_pairs_find_what_they_mean(store: Store, run: Run) -> None:
    choose = random.Random(7).choice
    everything = [make_any(choose, number) for number in range(60)]

    async def work() -> None:
        await put(store, everything)
        terms = make_terms()
        for term in terms:
            await check_page(store, everything, Filter((term,)), 100, True)
        wanted = [term for term in terms if isinstance(term, NameTerm | WordsTerm | ErrorTerm) and not term.negated]
        for _ in range(300):
            await check_page(store, everything, Filter((choose(wanted), choose(wanted))), 100, False)

    run(work())


@SETTINGS
@given(data=st.data())
def test_filters_find_what_they_mean(store: Store, run: Run, data: st.DataObject) -> None:
    def choose(options: Sequence[Any]) -> Any:
        return data.draw(st.sampled_from(options))

    everything = [make_any(choose, number) for number in range(data.draw(st.integers(0, 10)))]
    filters = data.draw(
        st.lists(st.lists(TERMS, max_size=3).map(lambda terms: Filter(tuple(terms))), min_size=10, max_size=20)
    )
    limit, newest_first = choose((1, 2, 5)), choose((False, True))

    async def work() -> None:
        await clear(store)
        if everything:
            await put(store, everything)
        for filter in filters:
            await check(store, everything, filter, limit, newest_first)

    run(work())


def test_partial_pages_lead_to_everything(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "LOOKED_AT_MAX", 4)
    monkeypatch.setattr(searching, "CONTENTS_MAX", 3)
    everything = [make_exported(make_letter(n), body={"a": n % 7, "b": "same"}) for n in range(40)]

    async def work(store: Store) -> None:
        await put(store, everything)
        filter = Filter((BodyTerm(path=("a",), value="3"), WordsTerm(words=("same",))))
        nothing = Filter((BodyTerm(path=("b",), value="same", negated=True),))
        page = await store.letters.page(nothing, limit=3, now_ms=NOW_MS)
        assert page.letters == ()
        assert page.is_partial
        assert page.next_cursor is not None
        for term in (BodyTerm(path=("a",), value="3"), BodyTerm(path=("b",), value="same", negated=True)):
            await check(store, everything, Filter((term,)), 2, True)
        await check(store, everything, filter, 50, False)

    on_store(store_url, work)


def test_what_no_index_answers_is_looked_for_a_window_at_a_time(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "LOOKED_AT_MAX", 2)
    monkeypatch.setattr(searching, "LONG", 0)
    monkeypatch.setattr(searching, "WINDOWS", (3, 5))
    monkeypatch.setattr(searching, "WINDOW_LOOKS", 1)
    everything = [
        make_exported(make_letter(n, queue=f"q{n % 3}", dlq=f"q{n % 2}", attempts=n % 11, service=f"s{n % 2}"))
        for n in range(60)
    ]

    async def work(store: Store) -> None:
        await put(store, everything)
        rare = NumberTerm(field="attempts", low=7, high=7)
        page = await store.letters.page(
            Filter((NumberTerm(field="attempts", low=99, high=None),)), limit=3, now_ms=NOW_MS
        )
        assert (page.letters, page.is_partial) == ((), True)
        for others in (
            (),
            (NameTerm(field="queue", values=("q1",)),),
            (NameTerm(field="queue", values=("q0", "q2")), NameTerm(field="service", values=("s1",))),
            (WordsTerm(words=("s1",), negated=True),),
            (TimeTerm(field="dead", from_ms=make_letter(9).dead_at_ms, until_ms=make_letter(40).dead_at_ms),),
        ):
            for newest_first in (True, False):
                await check(store, everything, Filter((rare, *others)), 2, newest_first)

    on_store(store_url, work)


def test_groups_that_do_not_drive_are_looked_for_a_window_at_a_time(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "LOOKED_AT_MAX", 2)
    monkeypatch.setattr(searching, "LONG", 0)
    monkeypatch.setattr(searching, "WINDOWS", (3, 5))
    monkeypatch.setattr(searching, "WINDOW_LOOKS", 1)
    for name in ("PIECES_MAX", "COUNTED_PIECES_MAX", "GATHERED_MAX"):
        monkeypatch.setattr(drivers, name, 2)
    everything = [
        make_exported(
            make_letter(n, error_type="Old" if n < 12 else "New", group_id=f"g{n % 6}/{n < 12}", queue=f"q{n % 2}"),
            title="",
        )
        for n in range(60)
    ]

    async def work(store: Store) -> None:
        await put(store, everything)
        old = NameTerm(field="error_type", values=("Old",))
        page = await store.letters.page(Filter((old,)), limit=3, now_ms=NOW_MS)
        assert (page.letters, page.is_partial) == ((), True)
        for others in ((), (NameTerm(field="queue", values=("q1",)),), (WordsTerm(words=("q0",), negated=True),)):
            for newest_first in (True, False):
                await check(store, everything, Filter((old, *others)), 2, newest_first)

    on_store(store_url, work)


def test_rare_letters_of_many_groups_are_merged(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "PIECES_MAX", 2)
    monkeypatch.setattr(drivers, "GATHERED_MAX", 2)
    monkeypatch.setattr(drivers, "RARE", 3)
    monkeypatch.setattr(letters, "LOOKED_AT_MAX", 1)
    everything = [
        make_exported(make_letter(n, error_type="Old" if n < 12 else "New", group_id=f"g{n % 6}/{n < 12}"), title="")
        for n in range(60)
    ]

    async def work(store: Store) -> None:
        await put(store, everything)
        old = NameTerm(field="error_type", values=("Old",))
        page = await store.letters.page(Filter((old,)), limit=20, now_ms=NOW_MS)
        assert (len(page.letters), page.is_partial) == (12, False)
        for newest_first in (True, False):
            await check(store, everything, Filter((old,)), 5, newest_first)

    on_store(store_url, work)


def test_a_page_that_takes_long_is_partial_and_leads_to_everything(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "PAGE_S_MAX", 0.0)
    monkeypatch.setattr(searching, "LONG", 0)
    monkeypatch.setattr(searching, "WINDOWS", (4, 8))
    everything = [make_exported(make_letter(n, attempts=n % 11), body={"a": n % 7}) for n in range(60)]

    async def work(store: Store) -> None:
        await put(store, everything)
        none = Filter((NumberTerm(field="attempts", low=99, high=None),))
        page = await store.letters.page(none, limit=3, now_ms=NOW_MS)
        assert (page.letters, page.is_partial) == ((), True)
        for terms in (
            (NumberTerm(field="attempts", low=7, high=7),),
            (BodyTerm(path=("a",), value="3", negated=True),),
            (ErrorTerm(text="zebra", negated=True), BodyTerm(path=("a",), value="3")),
        ):
            await check(store, everything, Filter(terms), 2, True)

    on_store(store_url, work)


def test_a_full_text_index_that_is_slow_is_not_waited_for(store_url: str) -> None:
    long = " ".join(f"w{n}" for n in range(2_000))
    texts = ("alpha bravo", "bravo alpha", "alphabet", f"{long} alpha", f"bravo {long}", "Zürich ꟿ1", "nothing")
    everything = [make_exported(make_letter(n), body={"a": texts[n % len(texts)]}) for n in range(50)]

    async def work(store: Store) -> None:
        await put(store, everything)
        with as_if_many():
            for terms in (
                (WordsTerm(words=("alpha",)),),
                (WordsTerm(words=("alph",), is_prefix=True),),
                (WordsTerm(words=("alpha", "brav"), is_phrase=True, is_prefix=True),),
                (WordsTerm(words=("alpha", "bravo")),),
                (WordsTerm(words=("alpha", "bravo"), is_phrase=True),),
                (WordsTerm(words=("w7",)), WordsTerm(words=("bravo",), negated=True)),
                (WordsTerm(words=("ꟿ1",)),),
                (WordsTerm(words=("zebra",)),),
                (BodyTerm(path=("a",), value="alpha bravo"),),
                (WordsTerm(words=("alpha",)), BodyTerm(path=("a",), value="bravo*")),
            ):
                for newest_first in (True, False):
                    await check(store, everything, Filter(terms), 3, newest_first)

    on_store(store_url, work)


def test_words_that_only_old_letters_have_are_found_by_the_index(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "NEAR", 100)
    monkeypatch.setattr(searching, "INDEX_S", 10.0)
    everything = [
        make_exported(make_letter(n), body={"a": f"{'june' if n < 25 else 'july'} {'c7 x' if n % 2 else 'd x'}"})
        for n in range(250)
    ]

    async def work(store: Store) -> None:
        await put(store, everything)
        june, open_c = WordsTerm(words=("june",)), WordsTerm(words=("c",), is_prefix=True)
        for terms in (
            (june,),
            (open_c, june),
            (june, WordsTerm(words=("c7", "x"), is_phrase=True)),
            (WordsTerm(words=("jun",), is_prefix=True),),
            (june, open_c, NameTerm(field="status", values=("pending",))),
        ):
            await check(store, everything, Filter(terms), 4, True)

    on_store(store_url, work)


def test_a_statement_that_takes_too_long_is_ended_and_the_connection_goes_on(store_url: str) -> None:
    async def work(store: Store) -> None:
        endless = (
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000000000) "
            "SELECT count(*) FROM n"
        )
        async with database_of(store).autocommit() as tx:
            assert await tx.rows_within(0.05, endless) is None
            assert [row[0] for row in await tx.rows_within(5.0, "SELECT 7") or ()] == [7]
            assert await tx.value("SELECT 8") == 8

    on_store(store_url, work)


def test_large_contents_are_not_held_together(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "CONTENTS_BYTES_MAX", 10)
    everything = [make_exported(make_letter(n, size_bytes=8), body={"a": n % 2}) for n in range(9)]

    async def work(store: Store) -> None:
        await put(store, everything)
        await check(store, everything, Filter((BodyTerm(path=("a",), value="1"),)), 3, True)

    on_store(store_url, work)


def test_many_groups_and_many_names_are_found_too(store_url: str) -> None:
    everything = [
        make_exported(
            make_letter(n, queue=f"q{n}", dlq=f"q{n}.parked", group_id=f"g{n}", status=list(Status)[n % 5]),
            title=f"TimeoutError: {n}",
        )
        for n in range(150)
    ]

    async def work(store: Store) -> None:
        await put(store, everything)
        for terms in (
            (ErrorTerm(text="timeout"),),
            (ErrorTerm(text="timeout"), NameTerm(field="status", values=("failed",))),
            (NameTerm(field="queue", values=("q*",)),),
            (NameTerm(field="queue", values=tuple(f"q{n}" for n in range(0, 150, 3))), ErrorTerm(text="1")),
        ):
            await check(store, everything, Filter(terms), 20, True)

    on_store(store_url, work)


def test_letters_that_come_while_somebody_pages_neither_repeat_nor_hide_others(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put(store, [make_letter(n) for n in range(0, 20, 2)])
        first = await store.letters.page(Filter(), limit=5, now_ms=NOW_MS)
        await put(store, [make_letter(n) for n in range(1, 40, 2)])
        gone = Selection(ids=(first.letters[-1].id,))
        await store.letters.delete(gone, who="test", why="", now_ms=NOW_MS)
        second = await store.letters.page(Filter(), limit=5, cursor=first.next_cursor, now_ms=NOW_MS)
        assert [letter.dead_at_ms - NOW_MS for letter in first.letters] == [18, 16, 14, 12, 10]
        assert [letter.dead_at_ms - NOW_MS for letter in second.letters] == [9, 8, 7, 6, 5]

    on_store(store_url, work)


@pytest.mark.parametrize(
    "cursor", ["", "x", "bm90IGpzb24", "WyJuZXdlc3QiXQ", "WyJvbGRlc3QiLDEsMl0", "WyJuZXdlc3QiLDEsIjIiXQ"]
)
def test_a_cursor_of_another_list_is_refused(store_url: str, cursor: str) -> None:
    async def work(store: Store) -> None:
        with pytest.raises(InvalidCursor, match="first page"):
            await store.letters.page(Filter(), limit=5, cursor=cursor, now_ms=NOW_MS)

    on_store(store_url, work)
