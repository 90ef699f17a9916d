"""Filters that no index answers: bounded, one per token at a time, and no delay for anybody else."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from redrive.admin import Services
from redrive.admin.middleware.quotas import TokenQuotas, too_many
from redrive.deadletters import RedriveService
from redrive.records import Role, View
from redrive.stores import Store
from tests.unit.admin.conftest import ClientFor, PutLetter, Run
from tests.unit.event_loop_gaps import longest_gap_s
from tests.unit.stores.arrivals import database_of

STARS = "*a" * 11
WIDE = ["topic:a*", "queue:*a", "dlq:*a*", "status:pending type:*", f"topic:{','.join(f't{n}' for n in range(60))}"]


def _asks(q: str) -> list[tuple[str, str, Any]]:
    """Every operation that takes a filter."""
    asked: list[tuple[str, str, Any]] = [
        ("GET", f"/api/v1/messages?q={quote(q)}", None),
        ("GET", f"/api/v1/stats?q={quote(q)}", None),
        ("POST", "/api/v1/redrives", {"q": q}),
        ("POST", "/api/v1/redrives", {"q": q, "dry_run": True}),
    ]
    return [*asked, *(("POST", f"/api/v1/messages/{one}", {"q": q, "why": "x"}) for one in ("resolve", "delete"))]


@pytest.mark.parametrize("queues", [(), ("orders",), ("ord*",)])
def test_names_with_stars_are_unindexed_searches_on_every_route(
    run: Run, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch, queues: tuple[str, ...]
) -> None:
    """No token has a turn here, so who needs one is refused."""

    def refuse(*_: object) -> None:
        raise too_many("there is no turn for anybody")

    monkeypatch.setattr(TokenQuotas, "searching", refuse)

    async def scenario() -> None:
        client = await client_for(Role.OPERATOR, queues=queues)
        for q in WIDE:
            for method, path, body in _asks(q):
                assert (await client.request(method, path, json=body)).status_code == 429, (path, q)
        for one in ("topic=a*", "service=*", "queue=*a", "eventType=a*b", "&".join(f"topic=t{n}" for n in range(60))):
            assert (await client.get(f"/dlq?{one}")).status_code == 429, one
        for path in ("/dlq", "/dlq?topic=a", "/api/v1/messages?q=queue:orders", "/dlq/stats", "/api/v1/stats"):
            assert (await client.get(path)).status_code == 200, path

    run(scenario())


def test_too_many_names_or_stars_are_refused(run: Run, client_for: ClientFor) -> None:
    async def scenario() -> None:
        client = await client_for(Role.OPERATOR)
        many = ",".join(f"*{number}" for number in range(51))
        for q in (f"topic:{many}", " ".join(f"topic:{number}*" for number in range(51)), f"queue:{STARS}"):
            for method, path, body in _asks(q):
                answer = await client.request(method, path, json=body)
                assert answer.status_code == 422, (path, q)
                assert "*" in answer.json()["detail"], answer.text
        for query in (
            "&".join(f"topic={number}*" for number in range(51)),
            "&".join(f"topic={number}*&service=*{number}" for number in range(26)),
            f"queue={STARS}",
            "&".join(f"eventType={number}" for number in range(101)),
            "&".join(["status=failed"] * 101),
        ):
            answer = await client.get(f"/dlq?{query}")
            assert answer.status_code == 422, query
            assert "at most" in answer.text
        assert (await client.get(f"/dlq?status={'failed,' * 3_000}")).status_code == 200

    run(scenario())


def test_many_topics_of_a_viewer_delay_nobody(
    run: Run, client_for: ClientFor, store: Store, put_letter: PutLetter
) -> None:
    """450 exact topics within the limit of a filter held up everybody for more than a second."""

    async def scenario() -> None:
        await put_letter(routing_key="t7", dlq="orders.dlq")
        async with database_of(store).write() as tx:
            for number in range(5_000):
                keep = "INSERT INTO tallies (dimension, key, status, n) VALUES ('topic', $1, 'pending', 1)"
                await tx.run(keep, f"topic.{number}.{'x' * 60}")
        client = await client_for(Role.VIEWER, queues=("orders",))
        exact = "topic:" + ",".join(f"t{number}" for number in range(700))
        answer, gap_s = await longest_gap_s(client.get("/api/v1/messages", params={"q": exact}))
        assert [one["routing_key"] for one in answer.json()["messages"]] == ["t7"]
        assert gap_s < 0.5
        stars = "topic:" + ",".join(f"*z{number}*b*c*" for number in range(50))
        answer, gap_s = await longest_gap_s(client.get("/api/v1/messages", params={"q": stars}))
        assert (answer.status_code, answer.json()["messages"]) == (200, [])
        assert gap_s < 0.5

    run(scenario())


def test_a_long_filter_is_hidden_without_being_parsed() -> None:
    """A page has a thousand of them. Whoever may not see a filter's values hears that there was one."""
    long = "topic:" + ",".join(f"t{number}" for number in range(1_400))
    limited = View(sees_payloads=False)
    assert limited.filter_text(long) == "(a filter on payloads)"
    assert limited.filter_text("topic:t1") == "topic:t1"
    assert View(sees_payloads=True).filter_text(long) == long


def test_an_unindexed_dry_run_runs_once_at_a_time_per_token(
    run: Run, client_for: ClientFor, put_letter: PutLetter, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking: list[int] = []
    most: list[int] = []
    plan = RedriveService.plan

    async def watched(self: RedriveService, new: Any) -> Any:
        looking.append(1)
        most.append(len(looking))
        await asyncio.sleep(0)
        try:
            return await plan(self, new)
        finally:
            looking.pop()

    async def scenario() -> None:
        await put_letter(body={"order": 17})
        client = await client_for(Role.OPERATOR)
        asked = {"q": "-body.order:18", "why": "look", "dry_run": True}
        answers = await asyncio.gather(*[client.post("/api/v1/redrives", json=asked) for _ in range(5)])
        assert [answer.json()["total"] for answer in answers] == [1] * 5
        assert max(most) == 1

    monkeypatch.setattr(RedriveService, "plan", watched)
    run(scenario())
