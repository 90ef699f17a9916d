"""`/api/v1/stats`: counts and time series, within the caller's queues."""

from typing import Any

import pytest

from redrive.records import Role, Status
from tests.unit.admin.conftest import ClientFor, PutLetter, Run

STATS = "/api/v1/stats"


async def put_some(put_letter: PutLetter) -> None:
    for status in (Status.PENDING, Status.PENDING, Status.RESOLVED):
        await put_letter(status=status)
    await put_letter(queue="payments", dlq="payments.parked", group_id="cards", routing_key="cards.failed")


def test_counts_along_every_dimension(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        await put_some(put_letter)
        client = await client_for(Role.VIEWER)
        told = (await client.get(STATS)).json()
        assert (told["total"], told["partial"]) == (4, False)
        assert told["by_status"] == {
            "pending": 3,
            "retrying": 0,
            "waiting": 0,
            "in_doubt": 0,
            "failed": 0,
            "resolved": 1,
        }
        assert told["by_queue"] == {"orders": {"pending": 2, "resolved": 1}, "payments": {"pending": 1}}
        assert set(told["by_group"]) == {"timeouts", "cards"}
        narrowed = (await client.get(STATS, params={"q": "topic:cards.*"})).json()
        assert (narrowed["total"], narrowed["by_queue"]) == (1, {"payments": {"pending": 1}})
        assert (await client.get(STATS, params={"q": "body.a:1"})).status_code == 403
        assert (await client.get(STATS, params={"q": "no:such"})).status_code == 422

    run(scenario())


def test_a_limited_token_counts_only_its_own(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        await put_some(put_letter)
        client = await client_for(Role.VIEWER, queues=("orders", "quiet*"))
        told = (await client.get(STATS)).json()
        assert told["total"] == 3
        for dimension in ("queue", "dlq", "topic", "group"):
            assert all("card" not in key and "pay" not in key for key in told[f"by_{dimension}"])
        assert (await client.get(STATS, params={"q": "queue:payments"})).json()["total"] == 0

    run(scenario())


def dead_of(answer: dict[str, Any]) -> int:
    return sum(one["dead"] for one in answer["points"])


def test_a_time_series_is_within_the_scope(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        await put_some(put_letter)
        at = "2027-01-15T00:00:00Z"
        span: dict[str, Any] = {"from": at, "until": "2027-01-16T00:00:00Z", "bucket_s": 3600}
        whole, limited = await client_for(Role.VIEWER), await client_for(Role.VIEWER, queues=("ord*",))
        everything = (await whole.get(f"{STATS}/timeseries", params=span)).json()
        assert (everything["bucket_s"], len(everything["points"]), everything["points"][0]["at"]) == (
            3600,
            24,
            "2027-01-15T00:00:00.000Z",
        )
        assert dead_of(everything) == 4
        assert dead_of((await limited.get(f"{STATS}/timeseries", params=span)).json()) == 3
        for client, queue, expected in ((whole, "payments", 1), (limited, "orders", 3), (limited, "payments", 0)):
            told = (await client.get(f"{STATS}/timeseries", params={**span, "queue": queue})).json()
            assert dead_of(told) == expected

    run(scenario())


@pytest.mark.parametrize(
    "params",
    [
        {"from": "never"},
        {"from": "2027-01-02", "until": "2027-01-01"},
        {"from": "0001-01-01T00:00:00Z"},
        {"until": "9999-12-31T23:59:59Z"},
        {"bucket_s": 0},
        {"bucket_s": "x"},
    ],
)
def test_moments_that_can_t_be_are_refused(run: Run, client_for: ClientFor, params: dict[str, Any]) -> None:
    async def scenario() -> None:
        client = await client_for(Role.VIEWER)
        assert (await client.get(f"{STATS}/timeseries", params=params)).status_code == 422

    run(scenario())


def test_a_wide_time_series_stays_small(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(Role.VIEWER)
        params: dict[str, Any] = {"from": "1971-01-01T00:00:00Z", "until": "2199-01-01T00:00:00Z", "bucket_s": 1}
        told = (await client.get(f"{STATS}/timeseries", params=params)).json()
        assert len(told["points"]) <= 2_000
        assert all(one["at"] is not None for one in told["points"])

    run(scenario())
