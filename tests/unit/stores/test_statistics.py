"""Statistics equal a recount of the letters, and say so when they are of some only."""

from collections import defaultdict

import pytest

from redrive.records import DeadLetter, ErrorTerm, Filter, NameTerm, Status, Term, WordsTerm
from redrive.stores import LetterStats, Store
from redrive.stores import statistics as stats
from redrive.stores.letters.counts import ACTIVITY_BUCKET_MS
from tests.unit.stores.made_letters import NOW_MS, make_exported, make_letter, on_store, put

LETTERS = [
    make_letter(
        number,
        status=list(Status)[number % 3],
        queue=f"q{number % 4}",
        dlq="dead",
        routing_key=f"t{number % 5}",
        service=None if number % 2 else "shop",
        type=f"T{number % 3}",
        group_id=f"g{number % 4}",
    )
    for number in range(60)
]
FIELDS = {"queue": "queue", "dlq": "dlq", "topic": "routing_key", "service": "service", "type": "type"}


def recount(letters: list[DeadLetter], field: str) -> dict[str, dict[str, int]]:
    counts: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for letter in letters:
        key = getattr(letter, field)
        if key is not None:
            counts[key][letter.status.value] += 1
    return {key: dict(by) for key, by in counts.items()}


def check(found: LetterStats, letters: list[DeadLetter]) -> None:
    assert found.total == len(letters)
    assert found.by_status == {key: sum(by.values()) for key, by in recount(letters, "status").items()}
    for name, field in {**FIELDS, "group": "group_id"}.items():
        assert getattr(found, f"by_{name}") == recount(letters, field), name


@pytest.mark.parametrize(
    ("terms", "holds"),
    [
        ((), lambda letter: True),
        ((NameTerm(field="status", values=("retrying",)),), lambda letter: letter.status is Status.RETRYING),
        ((NameTerm(field="queue", values=("q1", "q2")),), lambda letter: letter.queue in ("q1", "q2")),
        ((ErrorTerm(text="time"), NameTerm(field="type", values=("T1",))), lambda letter: letter.type == "T1"),
        ((WordsTerm(words=("common",)),), lambda letter: True),
        ((NameTerm(field="queue", values=("none",)),), lambda letter: False),
    ],
    ids=["everything", "a status", "queues", "an error and a type", "a word", "nothing"],
)
def test_totals_are_a_recount(store_url: str, terms: tuple[Term, ...], holds: object) -> None:
    assert callable(holds)

    async def work(store: Store) -> None:
        await put(store, [make_exported(letter, body="common") for letter in LETTERS])
        found = await store.stats.totals(Filter(terms), now_ms=NOW_MS)
        check(found, [letter for letter in LETTERS if holds(letter)])
        assert not found.is_partial

    on_store(store_url, work)


def test_more_than_can_be_counted_is_said_to_be_partial(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "COUNTED_MAX", 5)

    async def work(store: Store) -> None:
        await put(store, LETTERS)
        found = await store.stats.totals(Filter((NameTerm(field="queue", values=("q1",)),)), now_ms=NOW_MS)
        assert found.is_partial
        assert found.by_type == recount([letter for letter in LETTERS if letter.queue == "q1"][-5:], "type")
        # By status it is exact all the same.
        assert found.total == 15
        assert sum(found.by_status.values()) == 15

    on_store(store_url, work)


def test_only_the_largest_keys_are_told(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "KEYS_MAX", 2)

    async def work(store: Store) -> None:
        await put(store, [make_letter(number, queue="abbccc"[number]) for number in range(6)])
        for filter in (Filter(), Filter((NameTerm(field="dlq", values=("orders.parked",)),))):
            found = await store.stats.totals(filter, now_ms=NOW_MS)
            assert list(found.by_queue) == ["c", "b"]
            assert found.total == 6

    on_store(store_url, work)


def test_a_series_has_every_bucket_and_loses_nothing(store_url: str) -> None:
    width = ACTIVITY_BUCKET_MS
    begin = NOW_MS - NOW_MS % width

    async def work(store: Store) -> None:
        moments = [0, 1, width, 3 * width, 3 * width + 1, 3 * width + 2]
        letters = [
            make_letter(number, dead_at_ms=begin + moment, queue=f"q{number % 2}")
            for number, moment in enumerate(moments)
        ]
        await put(store, letters)
        series = await store.stats.series(from_ms=begin, until_ms=begin + 5 * width, bucket_ms=width)
        assert [(bucket.at_ms - begin, bucket.dead) for bucket in series] == [
            (0, 2),
            (width, 1),
            (2 * width, 0),
            (3 * width, 3),
            (4 * width, 0),
        ]
        wide = await store.stats.series(from_ms=begin, until_ms=begin + 4 * width, bucket_ms=2 * width, queue="q1")
        assert [bucket.dead for bucket in wide] == [1, 2]
        long = await store.stats.series(from_ms=0, until_ms=begin + 4 * width, bucket_ms=1)
        assert len(long) <= stats.BUCKETS_MAX
        assert sum(bucket.dead for bucket in long) == 6

    on_store(store_url, work)
