"""Export and import: what goes out comes in again, to the byte; a bad line says where and what was done."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import wire
from redrive.core import Attempt
from redrive.deadletters.actions.dead_letter_service import DeadLetterService
from redrive.deadletters.actions.edits import LetterEdit
from redrive.deadletters.actions.transfer import BadLine, export_lines, import_lines, read_line, write_line
from redrive.records import Filter, MessageContent, NameTerm, Selection
from redrive.stores import ExportedLetter, ImportResult, Store, open_store
from redrive.wire import Properties
from tests.examples import examples
from tests.unit.deadletters.arrivals import arrival, now_ms, store_arrivals
from tests.unit.wire import strategies as amqp


@asynccontextmanager
async def stores(folder: Path) -> AsyncIterator[tuple[Store, Store]]:
    async with (
        asyncio.timeout(60),
        await open_store(f"sqlite:///{folder / 'from.db'}") as source,
        await open_store(f"sqlite:///{folder / 'to.db'}") as target,
    ):
        yield source, target


async def everything(store: Store) -> list[ExportedLetter]:
    return [one async for one in store.letters.stream(Filter(), now_ms=now_ms())]


def ungrouped(letters: Iterable[ExportedLetter]) -> list[ExportedLetter]:
    """Without what is of one store alone."""
    return [replace(one, letter=replace(one.letter, group_id=""), group_title="") for one in letters]


async def lines_of(store: Store, filter: Filter | None = None) -> list[bytes]:
    return [line async for line in export_lines(store, filter or Filter(), now_ms=now_ms())]


async def fill(store: Store) -> list[str]:
    """Dead letters with odd contents, one edited, one resolved, one that came back."""
    typed = {"int8": wire.Int8(3), "bytes": b"\x00", "odd": wire.LongString(b"\xff"), "table": {"type": "x"}}
    arrivals = [
        arrival(Properties.of(headers=typed, message_id="a"), b"\xff\x00", error_type="Timeout", stack="at\n  b"),
        arrival(Properties.of(message_id="b"), b""),
        arrival(Properties.of(), "süß\u0000".encode(), history=(Attempt(number=1, at_ms=5, error="no"),)),
        arrival(Properties.of(message_id="d"), b"x" * 100_000),
    ]
    await store_arrivals(store, arrivals)
    service = DeadLetterService(store, clock_ms=now_ms)
    ids = [one.id for one in arrivals]
    await service.edit(ids[1], LetterEdit(body=b"\xfe new"), who="ann", why="was empty")
    await service.resolve(Selection(ids=(ids[2],)), who="ann", why="done by hand")
    return ids


def test_an_import_groups_letters_itself_and_believes_no_line_about_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with stores(tmp_path) as (source, target):
            await fill(source)
            line = read_line((await lines_of(source))[0])
            forged = [
                replace(
                    line,
                    letter=replace(line.letter, id=f"1m7jjvr61000000{n}", group_id="same", error_type=error_type),
                    group_title="forged",
                )
                for n, error_type in enumerate(["Timeout", "Timeout", "Gone", "", None])
            ]
            imported = await import_lines(target, map(write_line, forged), who="bob", now_ms=now_ms())
            assert imported.inserted == 5
            groups, _ = await target.groups.page(limit=10)
            assert {one.error_type: sum(one.by_status.values()) for one in groups} == {
                "Timeout": 2,
                "Gone": 1,
                "": 1,
                None: 1,
            }
            assert not {"same", "forged"} & {text for one in groups for text in (one.id, one.title)}
            for error_type, count in (("Timeout", 2), ("Gone", 1)):
                asked = Filter((NameTerm(field="error_type", values=(error_type,)),))
                assert len([one async for one in target.letters.stream(asked, now_ms=now_ms())]) == count
                assert await target.letters.count(asked, now_ms=now_ms()) == count

    asyncio.run(main())


def test_of_lines_with_one_id_the_first_is_taken_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with stores(tmp_path) as (source, target):
            await fill(source)
            first, second, *_ = [read_line(line) for line in await lines_of(source)]
            again = replace(first, letter=replace(first.letter, queue="another"), content=second.content)
            lines = [write_line(one) for one in (first, second, again)]
            assert await import_lines(target, lines, who="bob", now_ms=now_ms()) == ImportResult(inserted=2, skipped=1)
            stored = await everything(target)
            assert [one.letter.id for one in stored] == [first.letter.id, second.letter.id]
            assert ungrouped(stored)[0] == ungrouped([first])[0]

    asyncio.run(main())


def test_what_goes_out_comes_in_with_ids_edits_and_life(tmp_path: Path) -> None:
    async def main() -> None:
        async with stores(tmp_path) as (source, target):
            ids = await fill(source)
            lines = await lines_of(source)
            assert len(lines) == 4
            imported = await import_lines(target, lines, who="bob", now_ms=now_ms())
            assert imported == ImportResult(inserted=4, skipped=0)
            assert ungrouped(await everything(target)) == ungrouped(await everything(source))
            assert {one.letter.id for one in await everything(target)} == set(ids)
            assert ungrouped(map(read_line, await lines_of(target))) == ungrouped(map(read_line, lines))
            again = await import_lines(target, lines, who="bob", now_ms=now_ms())
            assert again == ImportResult(inserted=0, skipped=4)
            assert (await target.stats.totals(now_ms=now_ms())).by_status == {"pending": 3, "resolved": 1}

    asyncio.run(main())


def test_a_filter_says_what_goes_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with stores(tmp_path) as (source, _):
            ids = await fill(source)
            found = await lines_of(source, Filter((NameTerm(field="status", values=("resolved",)),)))
            assert [json.loads(line)["letter"]["id"] for line in found] == [ids[2]]

    asyncio.run(main())


BAD_LINES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda fields: "no object", "it is no JSON object"),
    (lambda fields: {**fields, "format": "other/2"}, "its format is 'other/2', not 'redrive-dead-letter/1'"),
    (lambda fields: {**fields, "letter": {}}, "it is no dead letter"),
    (lambda fields: {**fields, "letter": {**fields["letter"], "status": "lost"}}, "it is no dead letter"),
    (lambda fields: {**fields, "body": {"base64": "?"}}, "its body is no base64"),
    (lambda fields: {**fields, "body": {}}, "its body is neither `text` nor `base64`"),
    (lambda fields: {**fields, "properties": {"nonsense": 1}}, "there is no property 'nonsense'"),
    (lambda fields: {**fields, "past": [{}]}, "it is no dead letter"),
    (lambda fields: {name: fields[name] for name in fields if name != "life"}, "it is no dead letter"),
]


@pytest.mark.parametrize(("spoil", "reason"), BAD_LINES)
def test_a_bad_line_is_named_with_its_number_and_what_came_before_it_is_there(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    async def main() -> None:
        async with stores(tmp_path) as (source, target):
            await fill(source)
            lines = await lines_of(source)
            bad = json.dumps(spoil(json.loads(lines[2]))).encode()
            with pytest.raises(BadLine) as caught:
                await import_lines(target, [lines[0], b"\n", lines[1], bad, lines[3]], who="bob", now_ms=now_ms())
            assert caught.value.number == 4
            assert reason in str(caught.value)
            assert "the 2 dead letters before it are in the store, nothing from it on is" in str(caught.value)
            assert ungrouped(await everything(target)) == ungrouped((await everything(source))[:2])

    asyncio.run(main())


@pytest.mark.parametrize("line", [b"{", b"\xff\xfe", b'{"a": 1}}', b"null"])
def test_what_is_no_json_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="it is no JSON"):
        read_line(line)


def test_lines_are_read_as_they_are_stored_not_all_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with stores(tmp_path) as (source, target):
            await store_arrivals(source, [arrival(Properties.of(message_id=f"m{n}")) for n in range(450)])
            lines = await lines_of(source)
            ahead: list[int] = []

            def watched() -> Iterator[bytes]:
                for number, line in enumerate(lines):
                    ahead.append(number)
                    yield line

            calls: list[int] = []
            insert = target.letters.insert_exported

            async def counting(batch: Any, **more: Any) -> ImportResult:
                calls.append(len(ahead))
                return await insert(batch, **more)

            target.letters.insert_exported = counting  # type: ignore[method-assign]
            imported = await import_lines(target, watched(), who="bob", now_ms=now_ms())
            assert imported == ImportResult(inserted=450, skipped=0)
            assert calls == [100, 200, 300, 400, 450]

    asyncio.run(main())


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> ExportedLetter:
    """A dead letter of a store, to put other contents into."""
    folder = tmp_path_factory.mktemp("transfer")

    async def main() -> ExportedLetter:
        async with await open_store(f"sqlite:///{folder / 'one.db'}") as store:
            await store_arrivals(store, [arrival(Properties.of(message_id="a"))])
            return (await everything(store))[0]

    made: Coroutine[Any, Any, ExportedLetter] = main()
    return asyncio.run(made)


@settings(deadline=None, max_examples=examples(200))
@given(table=amqp.tables, fields=amqp.properties, body=st.binary(max_size=100), noise=st.binary(max_size=20))
def test_any_content_survives_a_line(
    sample: ExportedLetter, table: dict[str, Any], fields: dict[str, Any], body: bytes, noise: bytes
) -> None:
    for properties in (Properties.of(headers=table, **fields).raw, noise):
        one = replace(sample, content=MessageContent(properties=properties, body=body))
        line = write_line(one)
        assert line.count(b"\n") == 1
        assert read_line(line) == one
