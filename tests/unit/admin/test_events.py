"""`/api/v1/events`: one reading of the database for all streams; each sends the differences within its scope."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI

from redrive.admin.live_updates import LiveUpdates, Snapshot, close_live_updates
from redrive.admin.routes.events import read_event_id
from redrive.admin.services import Services
from redrive.records import NewOperation, Operation, OperationKind, Role, Selection
from redrive.stores import Store
from tests.unit.admin.conftest import ClientFor, Clock, PutLetter, Run
from tests.unit.admin.event_watch import EVENTS, PATIENCE_S, Watch


@pytest.fixture
def updates(app: FastAPI, services: Services) -> LiveUpdates:
    """The app's, looking often."""
    made = LiveUpdates(services, every_s=0.01)
    app.state.live_updates = made
    return made


async def operate(store: Store, id: str, queue: str, now_ms: int) -> Operation:
    page = await store.groups.page(limit=1, queue=queue)
    assert page[0]
    from redrive.records import Filter, NameTerm

    selection = Selection(filter=Filter((NameTerm(field="queue", values=(queue,)),)), filter_text=f"queue:{queue}")
    new = NewOperation(kind=OperationKind.REDRIVE, selection=selection, who="t")
    return await store.operations.create(new, id=id, now_ms=now_ms)


def states(watch: Watch) -> list[tuple[str, str]]:
    return [(one["id"], one["state"]) for one in watch.events("redrive")]


def test_a_stream_begins_with_the_current_state_and_sends_changes(
    run: Run,
    app: FastAPI,
    client_for: ClientFor,
    put_letter: PutLetter,
    store: Store,
    updates: LiveUpdates,
    clock: Clock,
) -> None:
    async def scenario() -> None:
        await put_letter()
        await operate(store, "op1", "orders", clock())
        watch = Watch(app, await client_for(Role.VIEWER))
        await watch.until(lambda one: states(one) == [("op1", "waiting")])
        assert watch.status == 200
        assert [one["total"] for one in watch.events("stats")] == [1]
        await put_letter()
        await watch.until(lambda one: [each["total"] for each in one.events("stats")] == [1, 2])
        await store.operations.pause("op1", "a break", now_ms=clock(), who="ada")
        await watch.until(lambda one: states(one)[1:] == [("op1", "paused")])
        await store.operations.cancel("op1", who="t", now_ms=clock())
        await watch.until(lambda one: states(one)[2:] == [("op1", "cancelled")])
        await watch.go_away()
        assert updates.watchers == 0

    run(scenario())


def test_a_limited_token_gets_events_of_its_queues_only(
    run: Run,
    app: FastAPI,
    client_for: ClientFor,
    put_letter: PutLetter,
    store: Store,
    updates: LiveUpdates,
    clock: Clock,
) -> None:
    async def scenario() -> None:
        await put_letter()
        await put_letter(queue="payments", dlq="payments.parked", group_id="cards")
        await operate(store, "op1", "payments", clock())
        await operate(store, "op2", "orders", clock())
        watch = Watch(app, await client_for(Role.VIEWER, queues=("orders*",)))
        await watch.until(lambda one: states(one) == [("op2", "waiting")])
        assert watch.events("stats") == [
            {
                "total": None,
                "by_status": None,
                "by_queue": None,
                "by_dlq": {"orders.parked": {"pending": 1}},
            }
        ]
        await put_letter(queue="payments", dlq="payments.parked", group_id="cards")
        await store.operations.pause("op1", "", now_ms=clock(), who="ada")
        await store.operations.pause("op2", "", now_ms=clock(), who="ada")
        await watch.until(lambda one: states(one)[1:] == [("op2", "paused")])
        assert len(watch.events("stats")) == 1
        assert "payments" not in watch.text
        assert "op1" not in watch.text
        await watch.go_away()

    run(scenario())


def test_a_reconnecting_client_gets_what_ended_meanwhile(
    run: Run,
    app: FastAPI,
    client_for: ClientFor,
    put_letter: PutLetter,
    store: Store,
    updates: LiveUpdates,
    clock: Clock,
) -> None:
    async def scenario() -> None:
        await put_letter()
        for number in (1, 2):
            await operate(store, f"op{number}", "orders", clock())
            await store.operations.cancel(f"op{number}", who="t", now_ms=clock())
            clock.now_ms += 60_000
        client = await client_for(Role.VIEWER)
        fresh = Watch(app, client)
        again = Watch(app, client, **{"last-event-id": str(clock() - 60_000)})
        await fresh.until(lambda one: len(one.events("stats")) == 1)
        await again.until(lambda one: states(one) == [("op2", "cancelled")])
        assert states(fresh) == []
        await asyncio.gather(fresh.go_away(), again.go_away())

    run(scenario())


def test_all_streams_share_one_database_reading_and_without_streams_there_is_none(
    run: Run,
    app: FastAPI,
    client_for: ClientFor,
    services: Services,
    updates: LiveUpdates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        looks = 0
        at_once = 0
        real = services.store.stats.totals

        async def totals(*args: Any, **names: Any) -> Any:
            nonlocal looks, at_once
            looks, at_once = looks + 1, at_once + 1
            assert at_once == 1
            try:
                return await real(*args, **names)
            finally:
                at_once -= 1

        monkeypatch.setattr(services.store.stats, "totals", totals)
        client = await client_for(Role.VIEWER)
        watches = [Watch(app, client) for _ in range(10)]
        for watch in watches:
            await watch.until(lambda one: len(one.events("stats")) == 1)
        (reading,) = (task for task in asyncio.all_tasks() if task.get_name() == "redrive live updates")
        await asyncio.gather(*(watch.go_away() for watch in watches))
        assert updates.watchers == 0
        before = looks
        for _ in range(20):
            await asyncio.sleep(0)
        await asyncio.wait([reading], timeout=PATIENCE_S)
        assert reading.done()
        assert looks == before

    run(scenario())


def test_the_number_of_streams_is_bounded(run: Run, app: FastAPI, client_for: ClientFor, services: Services) -> None:
    async def scenario() -> None:
        few = replace(services, settings=replace(services.settings, streams_max=2))
        app.state.live_updates = updates = LiveUpdates(few, every_s=0.01)
        client = await client_for(Role.VIEWER)
        watches = [Watch(app, client) for _ in range(2)]
        for watch in watches:
            await watch.until(lambda one: len(one.events("stats")) == 1)
        refused = await client.get(EVENTS)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:redrive:problem:too-many-streams")
        assert int(refused.headers["Retry-After"]) > 0
        await watches[0].go_away()
        assert updates.watchers == 1
        third = Watch(app, client)
        await third.until(lambda one: len(one.events("stats")) == 1)
        await asyncio.gather(watches[1].go_away(), third.go_away())

    run(scenario())


def test_a_server_that_stops_ends_its_streams(
    run: Run, app: FastAPI, client_for: ClientFor, updates: LiveUpdates
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.VIEWER)
        watch = Watch(app, client)
        await watch.until(lambda one: len(one.events("stats")) == 1)
        close_live_updates(app)
        await watch.ended()
        assert (await client.get(EVENTS)).status_code == 503

    run(scenario())


def test_a_stream_ends_when_its_token_is_revoked(
    run: Run, app: FastAPI, client_for: ClientFor, store: Store, updates: LiveUpdates, clock: Clock
) -> None:
    async def scenario() -> None:
        watch = Watch(app, await client_for(Role.VIEWER, name="ada"))
        other = Watch(app, await client_for(Role.VIEWER, name="eve"))
        for one in (watch, other):
            await one.until(lambda each: len(each.events("stats")) == 1)
        revoked = next(one for one in await store.tokens.all() if one.name == "eve")
        await store.tokens.revoke(revoked.id, who="t", now_ms=clock())
        await other.ended()
        assert updates.watchers == 1
        await watch.go_away()

    run(scenario())


def test_a_database_that_is_away_breaks_no_stream(
    run: Run,
    app: FastAPI,
    client_for: ClientFor,
    put_letter: PutLetter,
    services: Services,
    updates: LiveUpdates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redrive.admin.routes.events.HEARTBEAT_S", 0.05)

    async def scenario() -> None:
        from redrive.stores import StoreUnavailable

        watch = Watch(app, await client_for(Role.VIEWER))
        await watch.until(lambda one: len(one.events("stats")) == 1)
        real = services.store.stats.totals

        async def gone(*args: Any, **names: Any) -> Any:
            raise StoreUnavailable("db", "locked", "try later")

        monkeypatch.setattr(services.store.stats, "totals", gone)
        await watch.until(lambda one: one.text.count(": still here") >= 2)
        await put_letter()
        monkeypatch.setattr(services.store.stats, "totals", real)
        await watch.until(lambda one: len(one.events("stats")) == 2)
        await watch.go_away()

    run(scenario())


def test_nobody_without_a_token_watches(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(None)
        assert (await client.get(EVENTS)).status_code == 401

    run(scenario())


@pytest.mark.parametrize(("text", "expected"), [(None, None), ("17", 17), ("x", None), ("-1", None), ("9" * 40, None)])
def test_an_event_id_that_is_not_ours_counts_as_none(text: str | None, expected: int | None) -> None:
    assert read_event_id(text) == expected


def test_waiting_for_a_snapshot_ends_at_its_timeout(run: Run, services: Services) -> None:
    async def scenario() -> None:
        updates = LiveUpdates(services)
        assert await updates.wait_newer(None, timeout_s=0.0) is None
        with updates.watching("somebody"):
            first = await updates.wait_newer(None, timeout_s=PATIENCE_S)
            assert isinstance(first, Snapshot)
            assert await updates.wait_newer(first, timeout_s=0.0) is None

    run(scenario())
