"""What a parked copy tells of its runs, shape by shape: all of them where retries are copies, the last one where they
are rejects or returns, which can carry no header."""

import pytest

from redrive import App, Message, RetryAfter
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until

PER_QUEUE = "queues: {orders: {retry: {shape: per-queue, delays: [15s], attempts: 3}}}"
QUORUM = """
exchanges: {events: topic}
queues: {orders: {from: {events: ["#"]}, retry: {shape: quorum}}}
"""
REQUEUE = """
exchanges: {events: topic}
queues: {orders: {from: {events: ["orders.*"]}, type: TYPE, retry: {shape: requeue, requeue: HOW}}}
"""
TIERED = """
exchanges: {events: topic}
queues: {orders: {from: {events: ["orders.*"]}, retry: {shape: tiered}}}
"""
LONG = {
    "ladder": ("queues: {orders: {retry: [30s, 5m, 30m]}}", "orders", [1, 2, 3, 4]),
    "tiered": (TIERED, "orders", [1, 2, 3, 4]),
    "requeue": (REQUEUE.replace("TYPE", "classic").replace("HOW", "copy"), "orders", [1, 2, 3, 4]),
}
LAST = {
    "service": ("services: [wms-cincout]", "wms.queue.wms-cincout", [11]),
    "per-queue": (PER_QUEUE, "orders", [3]),
    "quorum": (QUORUM, "orders", [4]),
    "native": ("queues: {orders: {retry: {shape: native}}}", "orders", [4]),
}
KEPT = {**LONG, **LAST}


def history_of_a_dead_letter(declared: str, queue: str, *, profile: str = "4.3", late: int | None = None) -> list[int]:
    """The numbers of the runs that a message which always fails tells of in the end; run `late` asks for an hour."""
    found: list[int] = []
    runs: list[int] = []

    async def scenario() -> None:
        async with stage(declared, profile=profile) as on:
            topology = compiled(declared)
            routes = topology.queue(queue).routes
            assert routes is not None
            app = App(topology)

            @app.consumer(queue, pause_after=None)
            async def place(_body: bytes, message: Message) -> None:
                runs.append(message.attempt)
                if message.attempt == late:
                    raise RetryAfter(3600)
                raise ValueError(f"run {message.attempt}")

            async with on.running(app):
                name = await on.publish(queue)
                await until(lambda: on.decisions()["park"] == 1)
            assert on.places(name) == [f"ready in {routes.parking.queue}"]
            (parked,) = await on.take(routes.parking.queue)
            headers = parked.properties.headers
            assert runs == list(range(1, topology.queue(queue).policy.attempts_max + 1))
            assert headers["x-final-retry-count"] == len(runs) - 1
            assert headers["x-final-error"] == f"ValueError: run {len(runs)}"
            for run in headers["x-redrive-history"]:
                found.append(run["number"])
                error = "RetryAfter" if run["number"] == late else f"ValueError: run {run['number']}"
                assert run["error"].startswith(error)

    run_scenario(scenario())
    return found


@pytest.mark.parametrize("shape", list(KEPT))
def test_a_parked_copy_has_its_runs_in_its_history(shape: str) -> None:
    declared, queue, kept = KEPT[shape]
    assert history_of_a_dead_letter(declared, queue) == kept


def test_a_literal_nack_leaves_the_last_run_only() -> None:
    declared = REQUEUE.replace("TYPE", "quorum").replace("HOW", "nack")
    assert history_of_a_dead_letter(declared, "orders", profile="4.0") == [4]


def test_a_reject_loops_one_long_delay_is_a_copy_and_keeps_the_run_that_asked_for_it() -> None:
    """A `RetryAfter` beyond the retry queue's delay goes there as a copy, which has room for a word."""
    assert history_of_a_dead_letter(PER_QUEUE, "orders", late=1) == [1, 3]
