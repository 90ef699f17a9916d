"""A filter selects what `records.matches` says of each letter, on both databases, for everything that selects.

Many more pairs: `python -m tests.selections --pairs 100000`.
"""

import sqlite3

import asyncpg
import pytest

from redrive.core import PlainMessage
from redrive.records import (
    ErrorTerm,
    Filter,
    HeaderTerm,
    Selection,
    explain,
    matches,
    parse_filter,
    search_text,
)
from redrive.stores import Store
from redrive.stores.message_contents import headers_of
from redrive.stores.schema.versions import v0006_selecting
from redrive.wire import Properties
from tests.selections.auditor import audit_round, listed, stored
from tests.unit.stores.arrivals import collect, database_of, make_arrival
from tests.unit.stores.conftest import Run
from tests.unit.stores.made_letters import NOW_MS, make_exported, make_letter, put


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_every_way_to_select_selects_what_the_filter_means(store: Store, run: Run, seed: int) -> None:
    result = run(audit_round([store], seed, letters=20, filters=25))
    assert result.differences == []
    assert result.selected > 20, "the filters miss everything"


def test_only_letters_whose_error_has_the_text_are_deleted(store: Store, run: Run) -> None:
    """Three letters of one group, in a queue whose name has the word: one has it in its error."""
    texts = ("no room left", "no space left", "no seat left")
    made = [make_exported(make_letter(n, queue="rooms", error_message=text)) for n, text in enumerate(texts)]

    async def scenario() -> None:
        await put(store, made)
        selection = Selection(filter=parse_filter("error:room", now_ms=NOW_MS), filter_text="error:room")
        changed = await store.letters.delete(selection, who="ada", why="", now_ms=NOW_MS)
        assert changed.done == 1
        assert {letter.error_message for letter in await stored(store)} == set(texts[1:])

    run(scenario())


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("429", {0}),
        ("Anfrage 429", set()),
        ("STRASSE", {1, 2}),
        ("straße", {1, 2}),
        ("cafe\u0301", {3}),
        ("CAFÉ", {3}),
        ("100%", {4}),
        ("10_%", set()),
        ("timeout", {0, 1, 2, 3, 4}),
        ("ОШИБКА", {5}),
        ("orders", set()),
        ("r\uffffH", set()),
    ],
)
def test_error_searches_the_type_and_the_message_in_any_case(
    store: Store, run: Run, asked: str, expected: set[int]
) -> None:
    texts = ("HTTP 429 for order 17", "in der Straße", "STRASSE", "café zu", "at 100% of it", "ошибка")
    kinds = ("TimeoutError",) * 5 + ("Ошибка",)
    letters = [
        make_letter(n, error_type=kind, error_message=text, group_id=kind)
        for n, (kind, text) in enumerate(zip(kinds, texts, strict=True))
    ]

    async def scenario() -> None:
        await put(store, letters)
        for negated in (False, True):
            found = await listed(store, Filter((ErrorTerm(text=asked, negated=negated),)), limit=2)
            wanted = set(range(len(letters))) - expected if negated else expected
            assert {letter.id for letter in found} == {letters[number].id for number in wanted}

    run(scenario())


def test_a_value_beyond_what_is_indexed_is_found(store: Store, run: Run) -> None:
    body = {"before": "x " * 40_000, "city": "Zürich"}
    many = {f"h{n}": "w" * 40 + str(n) for n in range(2_000)}
    made = [
        make_exported(make_letter(1), body=body),
        make_exported(make_letter(2), body={"city": "Zürich"}),
        make_exported(make_letter(3), headers={**many, "x-last": "Bern"}, body={"city": "Bern"}),
    ]

    async def scenario() -> None:
        await put(store, made)
        assert await store.letters.count(parse_filter("body.city:Zürich", now_ms=NOW_MS), now_ms=NOW_MS) == 2
        assert await store.letters.count(parse_filter("body.city:Z*ich", now_ms=NOW_MS), now_ms=NOW_MS) == 2
        last = Filter((HeaderTerm(name="x-last", value="Bern"),))
        assert await store.letters.count(last, now_ms=NOW_MS) == 1

    run(scenario())


def test_what_a_collector_stores_is_found_as_it_reads_later(store: Store, run: Run) -> None:
    """The words of a letter come from the message when it is collected, and from the row when it is asked."""
    headers = {
        "x-redrive-reason": "attempts",
        "x-final-error": "Fehler\x00: e\u0301cole 429 \U0001f600",
        "x-original-queue": "straße",
        "x-tenant": ["a\x00b", {"deep": "er"}, 7],
    }
    body = b'{"a": "Z\\u00fcrich \\ud83d\\ude00", "b": "x\\u0000y"}'
    properties = Properties.of(headers=headers)
    told = explain(PlainMessage(queue="dlq", headers=headers), dlq="dlq", now_ms=NOW_MS)
    arrival = make_arrival(
        1,
        **{name: getattr(told, name) for name in ("queue", "error_type", "error_message", "reason", "stack")},
        search_text=search_text(told, headers=headers, body=body),
    )
    content = type(arrival.content)(properties=properties.raw, body=body)

    async def scenario() -> None:
        await collect(
            store, type(arrival)(**{name: getattr(arrival, name) for name in arrival.__slots__} | {"content": content})
        )
        (letter,) = await stored(store)
        for text in (
            "zurich",
            '"école 429"',
            "error:ÉCOLE",
            "strasse",
            '"a b"',
            "er",
            "body.a:Z*",
            "fehler",
            "-fehler",
        ):
            asked = parse_filter(text, now_ms=NOW_MS)
            wanted = matches(asked, letter, headers=headers_of(properties.raw), body=body, now_ms=NOW_MS)
            assert await store.letters.count(asked, now_ms=NOW_MS) == wanted, text

    run(scenario())


def test_letters_of_an_older_store_are_found_in_any_case_too(store: Store, store_url: str, run: Run) -> None:
    """As the migration leaves letters that were stored before it."""

    async def scenario() -> None:
        await put(store, [make_letter(1, error_message="СБОЙ"), make_letter(2, error_message="ok")])
        async with database_of(store).write() as tx:
            await tx.run("UPDATE letters SET error_folded = NULL")
        asked = parse_filter("error:сбой", now_ms=NOW_MS)
        assert await store.letters.count(asked, now_ms=NOW_MS) == 0
        if store.kind == "sqlite":
            connection = sqlite3.connect(store_url.removeprefix("sqlite:///"))
            with connection:
                v0006_selecting.fill_sqlite(connection)
            connection.close()
        else:
            pool = await asyncpg.create_pool(store_url, min_size=1, max_size=1)
            async with pool.acquire() as lent:
                await v0006_selecting.fill_postgresql(lent)
            await pool.close()
        assert await store.letters.count(asked, now_ms=NOW_MS) == 1

    run(scenario())


@pytest.mark.parametrize(
    "text",
    ['topic:"\uffff"', 'topic:"\uffff","a*"', 'topic:"\uffff*"', 'topic:"\ufffe*"', 'topic:"\uffff",b,c,d,e,f,g'],
)
def test_a_name_that_no_store_holds_as_it_is_finds_what_became_of_it(store: Store, run: Run, text: str) -> None:
    async def scenario() -> None:
        await put(store, [make_letter(1, routing_key="\uffff"), make_letter(2, routing_key="other")])
        asked = parse_filter(text, now_ms=NOW_MS)
        assert [one.routing_key for one in await listed(store, asked, limit=5)] == ["\ufffd"]
        assert await store.letters.count(asked, now_ms=NOW_MS) == 1

    run(scenario())
