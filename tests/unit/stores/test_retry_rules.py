"""Rules of auto-retry: the most specific counts, and a changed rule changes when its dead letters are due."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from redrive.records import ItemState, OperationKind, RetryRule
from redrive.stores import InvalidScope, RuleOutsideScope, Store, StoreUnavailable, open_store
from redrive.stores import retry_rules as rules
from redrive.stores.letters import incoming as arriving
from redrive.stores.letters import stored_batches as collecting
from tests.unit.stores.arrivals import NOW_MS, collect, database_of, make_arrival, redrive
from tests.unit.stores.conftest import Run
from tests.unit.stores.made_letters import make_letter, put


async def due(store: Store, *ids: str) -> list[int | None]:
    """When they are due, counted from when each died."""
    found = [await store.letters.get(id) for id in ids]
    return [
        letter.due_at_ms - letter.dead_at_ms if letter is not None and letter.due_at_ms is not None else None
        for letter in found
    ]


def test_rules_are_kept_as_they_were_set(store: Store, run: Run) -> None:
    async def scenario() -> None:
        rules = (
            RetryRule(scope="*", attempts=5, first_ms=10, ceiling_ms=20, settle_ms=30),
            RetryRule(scope="group:timeouts", enabled=False),
            RetryRule(scope="queue:orders", attempts=1),
        )
        for rule in rules:
            await store.rules.set(RetryRule(scope=rule.scope), now_ms=NOW_MS)
            await store.rules.set(rule, now_ms=NOW_MS, who="ada")
        assert await store.rules.all() == rules
        await store.rules.remove("*", now_ms=NOW_MS)
        await store.rules.remove("queue:nobody", now_ms=NOW_MS)
        assert await store.rules.all() == rules[1:]
        entries, _ = await store.audit.page(10, action="rule.set", who="ada")
        assert sorted(entry.subject for entry in entries) == ["*", "group:timeouts", "queue:orders"]

    run(scenario())


@pytest.mark.parametrize("scope", ["", "orders", "queue:", "group:", "topic:x"])
def test_a_scope_that_is_none_is_refused(store: Store, run: Run, scope: str) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidScope, match="is no scope of a rule"):
            await store.rules.set(RetryRule(scope=scope), now_ms=NOW_MS)
        assert await store.rules.all() == ()

    run(scenario())


def test_without_a_rule_nothing_is_due(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1))
        assert await due(store, *ids) == [None]

    run(scenario())


def test_the_most_specific_rule_counts_for_old_and_new_dead_letters_alike(store: Store, run: Run) -> None:
    kinds = (
        {"queue": "mail", "group_id": "others"},
        {"queue": "orders", "group_id": "others"},
        {"queue": "orders", "group_id": "timeouts"},
        {"queue": "mail", "group_id": "timeouts"},
    )

    async def scenario() -> None:
        old = await collect(store, *(make_arrival(n, **kind) for n, kind in enumerate(kinds)))
        number = 100

        async def expect(*expected: int | None) -> None:
            nonlocal number
            new = await collect(store, *(make_arrival(number + n, **kind) for n, kind in enumerate(kinds)))
            number += 10
            assert await due(store, *old) == [*expected]
            assert await due(store, *new) == [*expected]

        await store.rules.set(RetryRule(scope="*", first_ms=1, ceiling_ms=99), now_ms=NOW_MS)
        await expect(1, 1, 1, 1)
        await store.rules.set(RetryRule(scope="queue:orders", first_ms=2, ceiling_ms=99), now_ms=NOW_MS)
        await expect(1, 2, 2, 1)
        await store.rules.set(RetryRule(scope="group:timeouts", first_ms=3, ceiling_ms=99), now_ms=NOW_MS)
        await expect(1, 2, 3, 3)
        await store.rules.set(RetryRule(scope="*", first_ms=4, ceiling_ms=99), now_ms=NOW_MS)
        await expect(4, 2, 3, 3)
        await store.rules.set(RetryRule(scope="queue:orders", enabled=False), now_ms=NOW_MS)
        await expect(4, None, 3, 3)
        await store.rules.remove("group:timeouts", now_ms=NOW_MS)
        await expect(4, None, None, 4)
        await store.rules.remove("queue:orders", now_ms=NOW_MS)
        await expect(4, 4, 4, 4)
        await store.rules.remove("*", now_ms=NOW_MS)
        await expect(None, None, None, None)

    run(scenario())


@pytest.mark.parametrize("first_ms", [1, 1_000, 59_999, 60_000, 7_200_000])
def test_the_store_computes_what_the_rule_says(store: Store, run: Run, first_ms: int) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(4)))
        for turn in range(3):
            for id in ids[turn + 1 :]:
                await redrive(store, id, kind=OperationKind.AUTO_RETRY)
                number = 100 * turn + ids.index(id) + 10
                back = make_arrival(number, redriven_id=id, redriven_count=turn + 1, died_at_ms=NOW_MS)
                await collect(store, back)
        rule = RetryRule(scope="queue:orders", first_ms=first_ms, ceiling_ms=100_000, attempts=3)
        await store.rules.set(rule, now_ms=NOW_MS)
        expected = [rule.due_at_ms(died_at_ms=0, recurrences=n) for n in range(4)]
        assert await due(store, *ids) == expected
        assert expected[3] is None

    run(scenario())


def test_a_refusal_spends_no_attempt(store: Store, run: Run) -> None:
    async def scenario() -> None:
        rule = RetryRule(scope="*", first_ms=1_000, attempts=1)
        await store.rules.set(rule, now_ms=NOW_MS)
        [id] = await collect(store, make_arrival(1))
        for turn in range(3):
            await redrive(store, id, state=ItemState.REFUSED, why=f"turn {turn}")
        letter = await store.letters.get(id)
        assert letter is not None
        assert (letter.status, letter.due_at_ms) == ("pending", NOW_MS + 1_000)

    run(scenario())


def test_a_persons_redrive_begins_the_budget_anew_and_auto_retrys_own_spends_it(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await store.rules.set(RetryRule(scope="*", attempts=2, first_ms=1_000, ceiling_ms=60_000), now_ms=NOW_MS)
        (letter,) = await collect(store, make_arrival(1))
        count = 0

        async def send_and_lose(kind: OperationKind) -> tuple[str, int | None]:
            nonlocal count
            count += 1
            await redrive(store, letter, kind=kind)
            await collect(store, replace(make_arrival(100 + count), redriven_id=letter, redriven_count=count))
            found = await store.letters.get(letter)
            assert found is not None
            assert found.returns == count, "how often it came back is never forgotten"
            return str(found.status), (await due(store, letter))[0]

        assert await send_and_lose(OperationKind.AUTO_RETRY) == ("pending", 2_000)
        assert await send_and_lose(OperationKind.AUTO_RETRY) == ("failed", None)
        assert await send_and_lose(OperationKind.REDRIVE) == ("pending", 1_000), "as if it had just died"
        assert await send_and_lose(OperationKind.AUTO_RETRY) == ("pending", 2_000)
        await store.rules.set(RetryRule(scope="*", attempts=2, first_ms=5_000, ceiling_ms=60_000), now_ms=NOW_MS)
        assert await due(store, letter) == [10_000], "a changed rule counts the same returns"
        assert await send_and_lose(OperationKind.AUTO_RETRY) == ("failed", None)

    run(scenario())


def test_a_rule_set_while_dead_letters_are_being_stored_counts_for_them(
    store: Store, store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = RetryRule(scope="*", first_ms=7, ceiling_ms=99)

    async def scenario() -> None:
        has_read, go_on = asyncio.Event(), asyncio.Event()
        really_insert = arriving.insert_letters

        async def later(*arguments: Any) -> Any:
            has_read.set()
            await go_on.wait()
            return await really_insert(*arguments)

        monkeypatch.setattr(collecting, "insert_letters", later)
        async with await open_store(store_url) as other:
            storing = asyncio.create_task(collect(store, make_arrival(1)))
            await has_read.wait()
            setting = asyncio.create_task(other.rules.set(rule, now_ms=NOW_MS))
            await asyncio.wait([setting], timeout=0.3)  # whether it waits or not, it must count
            go_on.set()
            ids = await storing
            assert await setting
            assert await due(store, *ids) == [7]

    run(scenario())


def test_declared_rules_follow_the_file_and_give_way_to_people(store: Store, run: Run) -> None:
    async def scenario() -> None:
        queues = ["orders", "mail"]

        async def declare(*declared: RetryRule) -> tuple[str, ...]:
            return await store.rules.declare(declared, queues, now_ms=NOW_MS)

        orders, mail = RetryRule(scope="queue:orders"), RetryRule(scope="queue:mail", attempts=5)
        assert await declare(orders, mail) == ()
        (letter,) = await collect(store, make_arrival(1, queue="orders"))
        assert await due(store, letter) == [1_000]
        declared = (replace(mail, is_declared=True), replace(orders, is_declared=True))
        assert await store.rules.all() == declared
        before = await store.audit.page(10, action="rule.set")
        assert await declare(orders, mail) == ()
        assert await store.audit.page(10, action="rule.set") == before, "the same again changes nothing"

        await store.rules.set(RetryRule(scope="queue:mail", enabled=False), now_ms=NOW_MS, who="ada")
        assert await declare(replace(orders, first_ms=3_000), mail) == ("queue:mail",)
        assert await due(store, letter) == [3_000]
        assert (await store.rules.all())[0] == RetryRule(scope="queue:mail", enabled=False)

        await store.rules.set(RetryRule(scope="queue:elsewhere", is_declared=True), now_ms=NOW_MS)
        assert await declare() == ()
        assert [one.scope for one in await store.rules.all()] == ["queue:elsewhere", "queue:mail"]
        assert await due(store, letter) == [None]

    run(scenario())


@pytest.mark.parametrize("killed_after", [0, 1, 2, 3])
def test_a_change_of_a_rule_that_was_killed_between_two_pieces_is_gone_on_with(
    store: Store, store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    monkeypatch.setattr(rules, "PIECE", 2)
    really_apply = rules._apply_piece
    pieces = 0

    async def killed(tx: Any, *, now_ms: int) -> bool:
        nonlocal pieces
        if pieces == killed_after:
            raise StoreUnavailable("here", "killed", "go on")
        pieces += 1
        return await really_apply(tx, now_ms=now_ms)

    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n, queue="orders" if n < 5 else "mail") for n in range(7)))
        monkeypatch.setattr(rules, "_apply_piece", killed)
        with pytest.raises(StoreUnavailable):
            await store.rules.set(RetryRule(scope="*", first_ms=7, ceiling_ms=99), now_ms=NOW_MS, who="ada")
        half = await due(store, *ids)
        assert half == [7] * (2 * killed_after) + [None] * (7 - 2 * killed_after)
        # What comes now follows the rule at once, and so does what is left, whoever goes on.
        new = await collect(store, make_arrival(10))
        assert await due(store, *new) == [7]
        monkeypatch.setattr(rules, "_apply_piece", really_apply)
        async with await open_store(store_url) as other:
            assert await other.rules.set(RetryRule(scope="queue:mail", enabled=False), now_ms=NOW_MS, who="bob")
            assert await other.rules.apply_changes(now_ms=NOW_MS)
        assert await due(store, *ids) == [7, 7, 7, 7, 7, None, None]
        entries, _ = await store.audit.page(10, action="rule.applied")
        assert [(one.who, one.subject) for one in reversed(entries)] == [("ada", "*"), ("bob", "queue:mail")]
        mail_before = max(0, 2 * killed_after - 5)
        assert (entries[1].count, entries[0].count) == (5 + mail_before, mail_before)

    run(scenario())


def test_a_change_that_takes_long_is_left_to_others(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "PIECE", 1)

    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(3)))
        rule = RetryRule(scope="*", first_ms=7, ceiling_ms=99)
        assert not await store.rules.set(rule, now_ms=NOW_MS, patience_s=0.0)
        assert await due(store, *ids) == [7, None, None]
        assert await store.rules.apply_changes(now_ms=NOW_MS)
        assert await due(store, *ids) == [7, 7, 7]

    run(scenario())


MINE = ("orders",)
PLACES = (("orders", "orders.dlq"), ("orders", "payments.dlq"), ("payments", "payments.dlq"), ("orders", "orders"))
"""What letters say they failed in, and where they were taken: the second and third are not of the queue orders."""


async def put_places(store: Store, first: int = 0) -> list[str]:
    letters = [
        make_letter(first + number, queue=queue, dlq=dlq, group_id=f"{queue} of {dlq}", due_at_ms=None)
        for number, (queue, dlq) in enumerate(PLACES)
    ]
    await put(store, letters)
    return [one.id for one in letters]


def test_a_rule_for_some_queues_is_about_what_was_taken_for_these(store: Store, run: Run) -> None:
    """Letters of another queue that say they failed in this one follow the next wider rule, whatever becomes of it."""

    async def scenario() -> None:
        ids = await put_places(store)
        wide = RetryRule(scope="*", first_ms=1_000, ceiling_ms=1_000)
        await store.rules.set(wide, now_ms=NOW_MS)
        assert await due(store, *ids) == [1_000] * 4
        before = [await store.letters.get(id) for id in ids[1:3]]
        own = RetryRule(scope="queue:orders", enabled=False, queues=MINE)
        for rule, expected in ((own, None), (replace(own, enabled=True, first_ms=7, ceiling_ms=7), 7)):
            await store.rules.set(rule, now_ms=NOW_MS)
            assert await due(store, *ids) == [expected, 1_000, 1_000, expected]
        await store.rules.remove("queue:orders", queues=MINE, now_ms=NOW_MS)
        assert await due(store, *ids) == [1_000] * 4
        group = RetryRule(scope="group:orders of payments.dlq", enabled=False, queues=MINE)
        await store.rules.set(group, now_ms=NOW_MS)
        assert [await store.letters.get(id) for id in ids[1:3]] == before
        # What comes now is decided alike, also where it is imported or was refused.
        await store.rules.set(replace(own, enabled=True, first_ms=7, ceiling_ms=7), now_ms=NOW_MS)
        arrived = [
            make_arrival(100 + number, queue=queue, dlq=dlq, group_id=f"{queue} of {dlq}")
            for number, (queue, dlq) in enumerate(PLACES)
        ]
        for one, expected in zip(arrived, (7, 1_000, 1_000, 7), strict=True):
            assert await due(store, *await collect(store, one)) == [expected]

    run(scenario())


def test_a_rule_for_some_queues_leaves_due_times_of_others_that_were_moved(store: Store, run: Run) -> None:
    """One that could not be sent is due later than its rule alone says; another team's rule must not change that."""

    async def scenario() -> None:
        ids = await put_places(store)
        await store.rules.set(RetryRule(scope="*", first_ms=1_000, ceiling_ms=1_000), now_ms=NOW_MS)
        async with database_of(store).write() as tx:
            await tx.run("UPDATE letters SET due_at_ms = dead_at_ms + 5000 WHERE id = $1", ids[1])
        await store.rules.set(RetryRule(scope="queue:orders", queues=MINE), now_ms=NOW_MS)
        await store.rules.remove("queue:orders", queues=MINE, now_ms=NOW_MS)
        assert await due(store, *ids) == [1_000, 5_000, 1_000, 1_000]

    run(scenario())


def test_nobody_changes_a_rule_of_somebody_for_more_queues(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await store.rules.set(RetryRule(scope="queue:orders", attempts=9), now_ms=NOW_MS, who="admin")
        await store.rules.set(RetryRule(scope="queue:orders.new", queues=("orders*",)), now_ms=NOW_MS, who="more")
        kept = await store.rules.all()
        for scope in ("queue:orders", "queue:orders.new"):
            with pytest.raises(RuleOutsideScope, match="with more queues"):
                await store.rules.set(RetryRule(scope=scope, enabled=False, queues=MINE), now_ms=NOW_MS)
            with pytest.raises(RuleOutsideScope):
                await store.rules.remove(scope, queues=MINE, now_ms=NOW_MS)
        assert await store.rules.all() == kept
        # Who has as many or more may.
        for queues in (("orders*",), ("ord*",), ("x", "orders*"), ()):
            await store.rules.set(RetryRule(scope="queue:orders.new", queues=queues), now_ms=NOW_MS)
            await store.rules.remove("queue:orders.new", queues=queues, now_ms=NOW_MS)
            await store.rules.set(RetryRule(scope="queue:orders.new", queues=("orders*",)), now_ms=NOW_MS)

    run(scenario())


def test_a_file_s_rule_takes_the_place_of_one_for_some_queues(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await put_places(store)
        await store.rules.set(RetryRule(scope="queue:orders", enabled=False, queues=MINE), now_ms=NOW_MS)
        declared = RetryRule(scope="queue:orders", first_ms=3, ceiling_ms=3)
        assert await store.rules.declare([declared], ["orders"], now_ms=NOW_MS) == ()
        assert await due(store, *ids) == [3, 3, None, 3]

    run(scenario())
