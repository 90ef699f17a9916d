"""What a token for some queues asks of a store: groups, time series, operations and pages of many names at once."""

import pytest

from redrive.records import Filter, NameTerm, NewOperation, OperationKind, Selection, Status, matches_glob
from redrive.stores import Store
from redrive.stores.search import index_choice as drivers
from redrive.stores.search.index_choice import PIECES_MAX, choose_index, expand_names
from tests.unit.event_loop_gaps import longest_gap_s
from tests.unit.stores.arrivals import database_of
from tests.unit.stores.conftest import Run
from tests.unit.stores.made_letters import NOW_MS, make_letter, put

HOUR_MS = 3_600_000


async def put_queues(store: Store, count: int = 5) -> None:
    """Four of each of so many queues, and one of `rare`, the longest dead."""
    letters = [make_letter(0, queue="rare", dlq="rare.dlq", group_id="rare")]
    for number in range(1, 4 * count + 1):
        name = f"q{number % count}"
        status = Status.FAILED if number % 3 == 0 else Status.PENDING
        letters.append(make_letter(number, queue=name, dlq=f"{name}.dlq", group_id=f"{name} group", status=status))
    await put(store, letters)


def test_groups_of_some_queues_are_paged(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await put_queues(store)
        seen: list[str] = []
        cursor = None
        while True:
            groups, cursor = await store.groups.page(limit=1, cursor=cursor, queues=("q[1]", "q1", "q3*", "nobody"))
            seen += [group.queue for group in groups]
            if cursor is None:
                break
        assert seen == ["q3", "q1"]
        assert await store.groups.page(limit=5, queues=("nobody",)) == ([], None)
        both, _ = await store.groups.page(limit=5, queue="q1", queues=("q3",))
        assert both == []

    run(scenario())


def test_a_time_series_of_some_dead_letter_queues(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await put_queues(store)
        dead = []
        for dlqs in ((), ("q1.dlq",), ("q*",), ("r*", "q2.dlq"), ("nobody",)):
            buckets = await store.stats.series(
                from_ms=NOW_MS - HOUR_MS, until_ms=NOW_MS + HOUR_MS, bucket_ms=HOUR_MS, dlqs=dlqs
            )
            assert len(buckets) == 2
            dead.append(sum(one.dead for one in buckets))
        assert dead == [21, 4, 20, 5, 0]

    run(scenario())


def test_operations_know_where_their_letters_lay(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await put_queues(store)
        for id, queues in (("one", ("q1",)), ("two", ("q1", "rare"))):
            selection = Selection(filter=Filter((NameTerm(field="queue", values=queues),)), filter_text=id)
            new = NewOperation(kind=OperationKind.REDRIVE, selection=selection, who="t")
            await store.operations.create(new, id=id, now_ms=NOW_MS)
        assert await store.operations.places(["one", "two", "three"]) == {
            "one": {("q1", "q1.dlq")},
            "two": {("q1", "q1.dlq"), ("rare", "rare.dlq")},
            "three": frozenset(),
        }
        rare = Selection(filter=Filter((NameTerm(field="queue", values=("rare",)),)))
        await store.letters.delete(rare, who="t", why="", now_ms=NOW_MS)
        assert ("rare", None) in (await store.operations.places(["two"]))["two"]
        assert [one.id for one in await store.operations.open(10)] == ["two", "one"]
        await store.operations.cancel("two", who="t", now_ms=NOW_MS)
        assert [one.id for one in await store.operations.open(10)] == ["one"]

    run(scenario())


@pytest.mark.parametrize("rare", [0, 20])
@pytest.mark.parametrize("newest_first", [True, False])
def test_a_page_of_many_names_is_the_page_of_looking_at_each(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, newest_first: bool, rare: int
) -> None:
    monkeypatch.setattr(drivers, "RARE", rare)

    async def scenario() -> None:
        await put_queues(store, count=30)
        names = ("rare", *(f"q{number}" for number in range(0, 30, 2)), *(f"quiet{number}" for number in range(30)))
        for more in (
            (),
            (NameTerm(field="status", values=("failed",)),),
            (NameTerm(field="queue", values=("rare", "q4")),),
        ):
            asked = Filter((NameTerm(field="queue", values=names), *more))
            everything = await store.letters.page(Filter(), limit=1_000, newest_first=newest_first, now_ms=NOW_MS)
            expected = [
                one.id
                for one in everything.letters
                if one.queue in names
                and (not more or one.status.value in more[0].values or one.queue in more[0].values)
            ]
            seen: list[str] = []
            cursor = None
            while True:
                page = await store.letters.page(asked, limit=7, cursor=cursor, newest_first=newest_first, now_ms=NOW_MS)
                seen += [one.id for one in page.letters]
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert seen == expected
        nobody = Filter((NameTerm(field="queue", values=tuple(f"quiet{number}" for number in range(30))),))
        assert (await store.letters.page(nobody, limit=7, now_ms=NOW_MS)).letters == ()

    run(scenario())


def test_many_names_of_few_letters_are_found_by_the_index(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await put_queues(store, count=40)
        names = ("rare", *(f"quiet{number}" for number in range(40)))
        async with database_of(store).read() as tx:
            conditions = await expand_names(tx, (NameTerm(field="queue", values=names),))
            assert conditions == (NameTerm(field="queue", values=("rare",)),)
            driver = await choose_index(tx, conditions, None, measured=False)
            assert driver.term == conditions[0]
            assert driver.rest == ()
            many = NameTerm(field="queue", values=tuple(f"q{number}" for number in range(40)))
            driver = await choose_index(tx, (many,), None, measured=False)
            # They are nearly all there is: looking through all of them is quicker.
            assert (driver.term, driver.rest) == (None, (many,))
        assert len(many.values) * 2 > PIECES_MAX

    run(scenario())


async def put_names(store: Store, count: int) -> None:
    """So many topics that have letters."""
    async with database_of(store).write() as tx:
        names = [f"topic.{number:05}.{'x' * 60}" for number in range(count)]
        for name in names:
            await tx.run("INSERT INTO tallies (dimension, key, status, n) VALUES ('topic', $1, 'pending', 1)", name)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(tuple(f"topic.{number}" for number in range(1_500)), id="exact"),
        pytest.param(tuple(f"*z{number}*b*c*" for number in range(900)), id="stars"),
    ],
)
def test_names_are_compared_with_all_there_are_without_holding_up_others(
    store: Store, run: Run, values: tuple[str, ...]
) -> None:
    """900 names with stars and 3,000 known ones stopped the whole process for some seconds."""

    async def scenario() -> None:
        await put_names(store, 3_000)
        await put(store, [make_letter(0, routing_key="topic.1")])
        asked = Filter((NameTerm(field="topic", values=values),))
        page, gap_s = await longest_gap_s(store.letters.page(asked, limit=5, now_ms=NOW_MS))
        assert [one.routing_key for one in page.letters] == (["topic.1"] if "*" not in values[0] else [])
        assert gap_s < 0.5

    run(scenario())


def test_names_written_out_are_those_that_the_pattern_stands_for(store: Store, run: Run) -> None:
    """Whatever has a meaning in the database's own patterns has none in ours."""
    known = ("a.b", "a_b", "a%b", "a[b]c", "a?b", "A.B", "a\\b", "a*b", "")

    async def scenario() -> None:
        await put(store, [make_letter(number, routing_key=name) for number, name in enumerate(known)])
        for asked in ("a*b", "*_b", "*%b", "*[b]*", "a?*", "*\\b", "a.*", "*", "**", "nobody*"):
            async with database_of(store).read() as tx:
                (found,) = await expand_names(tx, (NameTerm(field="topic", values=(asked,)),))
            assert isinstance(found, NameTerm)
            assert found.values == tuple(sorted(name for name in known if matches_glob(asked, name))), asked

    run(scenario())
