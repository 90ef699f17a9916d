"""Redrives are planned, started, paused, resumed and cancelled, on a real SQLite store; bad requests are refused."""

from typing import Any

import pytest

from redrive.deadletters.actions.dead_letter_service import ActionRefused
from redrive.deadletters.redrive.preflight import TargetRefused
from redrive.records import (
    Filter,
    NewOperation,
    OperationKind,
    OperationState,
    RedriveTarget,
    Selection,
    Status,
)
from redrive.stores import UnknownOperation
from tests.unit.deadletters.services_stage import EVERYTHING, UNFIT, Play, ServicesStage


def test_a_plan_counts_and_changes_nothing_and_an_unfit_target_refuses_the_start(play: Play) -> None:
    async def scenario(on: ServicesStage) -> None:
        new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(filter=Filter()), who="ann")
        on.preflight = UNFIT
        plan = await on.redrives.plan(new)
        assert (plan.preview.total, plan.preview.by_queue, plan.preflight) == (3, {"orders": 3}, UNFIT)
        with pytest.raises(TargetRefused, match="queue orders: it is gone"):
            await on.redrives.start(new)
        assert (await on.store.operations.page(10))[0] == []
        assert await on.actions() == []

    play(scenario)


def test_an_operation_is_paused_resumed_and_cancelled_once(play: Play) -> None:
    async def scenario(on: ServicesStage) -> None:
        new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(ids=on.ids), who="ann")
        id = (await on.redrives.start(new)).id
        with pytest.raises(ActionRefused, match="is waiting, not paused"):
            await on.redrives.resume(id, who="ann")
        paused = await on.redrives.pause(id, who="ann")
        assert (paused.state, paused.note) == (OperationState.PAUSED, "paused by ann")
        assert (await on.redrives.resume(id, who="ann")).state is OperationState.WAITING
        cancelled = await on.redrives.cancel(id, who="ann")
        assert (cancelled.state, cancelled.skipped) == (OperationState.CANCELLED, 3)
        with pytest.raises(ActionRefused, match="has ended: it is cancelled"):
            await on.redrives.cancel(id, who="ann")
        with pytest.raises(UnknownOperation):
            await on.redrives.pause("nobody", who="ann")
        assert {await on.status(one) for one in on.ids} == {Status.PENDING}

    play(scenario)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"selection": Selection()}, "choose which dead letters"),
        ({"selection": Selection(ids=("a",), filter=Filter())}, "not by both"),
        ({"selection": Selection(filter=Filter(), limit=0)}, "a limit of 0 takes nothing"),
        ({"rate_per_s": 0.0}, "a rate of 0 messages a second"),
        ({"rate_per_s": float("nan")}, "a rate of nan"),
        ({"ramp": (1, 0)}, "a ramp is at most 20 batches"),
        ({"settle_s": 0}, "must be above zero"),
        ({"target": RedriveTarget(exchange="retry.{queeu}")}, "a placeholder other than {queue}"),
        ({"who": " "}, "say who you are"),
        ({"who": "a" * 201}, "longer than 200 characters"),
        ({"why": "a" * 2001}, "the reason is longer than 2,000 characters"),
    ],
)
def test_a_bad_request_is_refused_in_a_sentence(play: Play, fields: dict[str, Any], reason: str) -> None:
    async def scenario(on: ServicesStage) -> None:
        known: dict[str, Any] = {"kind": OperationKind.REDRIVE, "selection": EVERYTHING, "who": "ann"}
        with pytest.raises(ActionRefused, match=reason):
            await on.redrives.start(NewOperation(**{**known, **fields}))

    play(scenario)
