"""The auditor can fail: each of these breaks a promise on purpose, and is found."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from redrive.client import Confirmed
from redrive.core import AckDelivery, Command, Crashed, PublishCopy, RequeueDelivery, deaths_in, parking_headers
from redrive.core import headers as names
from redrive.embedded.virtual_time import Timekeeper
from redrive.runtime.admission import Admission
from redrive.runtime.delivered_message import DeliveredMessage
from redrive.runtime.settlement import command_executor, detached_copies
from redrive.topology import HeaderTrust
from redrive.topology.deliveries import moves
from redrive.topology.deliveries.message_origin import write_original_route
from redrive.topology.shapes.native import NativeShape
from tests.simulation import forged_headers as forgers
from tests.simulation import world
from tests.simulation.scenarios import draw_scenario
from tests.simulation.tally import play_seed

SEEDS = range(40)
FOUND_BY = (38,)
REFUSED_BY = (30, *SEEDS)
"""The first of them parks a copy that is refused."""
COUNTED_BY_DELIVERIES = (7925, 10724, 14639, 15874)
"""The literal requeue on quorum queues up to 4.0, and pauses."""
FORGED = tuple(seed for seed in range(120) if any(one.is_forged for one in draw_scenario(seed).messages))
FORGOTTEN = 13288
"""3.10, and a message with another's x-death that expires in its own queue."""
RULED = (577, 1980)
"""`native`, and rules that allow more runs than the queue."""
ONE_DAY_S = 86_400.0
"""How long to wait for what never comes."""


def first_finding(wanted: str, seeds: Iterable[int] = SEEDS) -> str:
    """What the auditor says, as soon as any seed shows it."""
    seen = []
    for seed in seeds:
        for text in play_seed(seed).account.faults_found:
            seen.append(text)
            if wanted in text:
                return text
    pytest.fail(f"no seed shows it; they say {seen[:5]}")


def test_an_ack_without_its_copy_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(*_: Any) -> bool:
        return True

    monkeypatch.setattr(command_executor.CommandExecutor, "_publish_until_confirmed", forget)
    assert "is lost" in first_finding("is lost")


def test_a_parked_copy_that_is_refused_and_taken_for_confirmed_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for these: whoever hears the outcome acks."""
    end = detached_copies.DetachedCopies.end

    def believe(self: detached_copies.DetachedCopies, sink: Any, _: Any) -> None:
        end(self, sink, Confirmed())

    monkeypatch.setattr(detached_copies.DetachedCopies, "end", believe)
    assert "is lost" in first_finding("is lost", REFUSED_BY)


def test_a_copy_that_is_refused_and_not_insisted_on_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    async def let_be(*_: Any) -> bool:
        return True

    monkeypatch.setattr(command_executor.CommandExecutor, "repeat_until_confirmed", let_be)
    assert "is lost" in first_finding("is lost")


def test_a_copy_that_is_published_twice_is_a_duplicate_without_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    execute = command_executor.CommandExecutor.execute

    async def twice(self: command_executor.CommandExecutor, delivery: Any, commands: Any) -> bool:
        listed: list[Command] = list(commands)
        copies = [one for one in listed if isinstance(one, PublishCopy)]
        return await execute(self, delivery, [*copies, *listed])

    monkeypatch.setattr(command_executor.CommandExecutor, "execute", twice)
    assert "with 0 disturbances" in first_finding("ended 2 times, with 0 disturbances")


def test_a_delay_that_is_too_short_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    send = moves.copy_to_wait

    def hurry(delay_ms: int, *rest: Any, **options: Any) -> tuple[Command, ...]:
        return send(delay_ms // 2, *rest, **options)

    monkeypatch.setattr(moves, "copy_to_wait", hurry)
    assert "was followed by attempt" in first_finding("was followed by attempt")


def without(*dropped: str) -> Callable[[Any, Any, Any], dict[str, Any]]:
    def written(decision: Any, letter: Any, report: Any) -> dict[str, Any]:
        return {name: value for name, value in parking_headers(decision, letter, report).items() if name not in dropped}

    return written


def test_a_parked_copy_that_does_not_say_why_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "parking_headers", without(names.FINAL_ERROR))
    assert "was parked with error None" in first_finding("was parked with error")


def test_a_parked_copy_with_two_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "parking_headers", without(names.FINAL_RETRY_COUNT))
    assert "two retry counts" in first_finding("two retry counts")


def test_a_delivery_that_is_never_settled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = command_executor.settle

    def forget_acks(delivery: Any, command: Any) -> None:
        if not isinstance(command, AckDelivery):
            settle(delivery, command)

    monkeypatch.setattr(command_executor, "settle", forget_acks)
    monkeypatch.setattr(world, "QUIET_S_MAX", ONE_DAY_S)
    assert "in hand" in first_finding("not quiet")


@pytest.mark.parametrize("finding", ["had attempt 2 after 0 runs", "is parked for crashes, and had none"])
def test_a_delivery_that_never_ran_and_is_counted_is_found(monkeypatch: pytest.MonkeyPatch, finding: str) -> None:
    """A bug that seeds found: a paused queue requeued its messages, and the broker counted that as an attempt."""
    monkeypatch.setattr(Admission, "own_queue_copy", lambda *_, **__: None)
    assert finding in first_finding(finding, COUNTED_BY_DELIVERIES)


def test_runs_that_a_rule_allows_and_the_broker_ends_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug that a seed found: above the queue's own attempts a requeue was one too many."""
    monkeypatch.setattr(NativeShape, "retry", lambda *_: (RequeueDelivery(counted=True),))
    assert "parked for crashes, and had none" in first_finding("parked for crashes, and had none", RULED)


def test_a_crash_limit_that_takes_every_requeue_for_a_death_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Admission.judge

    def suspect(self: Admission, letter: Any, body: bytes, **options: Any) -> Any:
        return Crashed(deliveries=1) if letter.redelivered else judge(self, letter, body, **options)

    monkeypatch.setattr(Admission, "judge", suspect)
    assert "parked for crashes, and" in first_finding("parked for crashes, and")


def test_trusting_copied_headers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug that outsiders found: headers that a publisher had copied from another message were trusted."""
    monkeypatch.setattr(DeliveredMessage, "trust", HeaderTrust.OWN)
    monkeypatch.setattr(forgers, "FAR_MS", 1)  # or it would be waited for, lap by lap
    assert "after 0 runs" in first_finding("after 0 runs", FORGED)


def test_a_message_that_starts_with_anothers_deaths_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "redrive.core.attempts.own_deaths", lambda letter: deaths_in(letter.header("x-death"), letter.queue)
    )
    assert "after 0 runs" in first_finding("after 0 runs", FORGED)


def test_a_publishers_delivery_count_that_is_left_on_a_requeued_message_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug that seeds found: 4.3 counts no nack, and the publisher's number was taken for the queue's."""
    monkeypatch.setattr("redrive.runtime.admission.brings_deliveries", lambda _: False)
    monkeypatch.setattr("redrive.topology.deliveries.moves.brings_deliveries", lambda _: False)
    assert "parked for crashes, and had none" in first_finding("parked for crashes, and had none", (15130,))


def test_an_origin_that_is_forgotten_without_need_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another's headers alone excuse nobody: what has not expired in its own queue still shows how it came."""

    def forget(written: dict[str, Any], letter: Any) -> dict[str, Any]:
        written = write_original_route(written, letter)
        if letter.has_anothers_headers:
            written |= {names.ORIGINAL_EXCHANGE: "", names.ORIGINAL_ROUTING_KEY: letter.queue}
        return written

    monkeypatch.setattr("redrive.topology.deliveries.moves.write_original_route", forget)
    seeds = [seed for seed in FORGED if draw_scenario(seed).profile == "3.10"]
    assert "in parking" in first_finding("and says ('', '", seeds)


def test_an_origin_that_nobody_can_know_is_not_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    """The route that a stranger's x-death tells, believed of the message that brought it and expired."""
    assert play_seed(FORGOTTEN).account.excepted["expired with another's deaths"] == 1

    def invent(written: dict[str, Any], letter: Any) -> dict[str, Any]:
        written = write_original_route(written, letter)
        if letter.has_anothers_headers:
            written |= {names.ORIGINAL_EXCHANGE: "another", names.ORIGINAL_ROUTING_KEY: "another.key"}
        return written

    monkeypatch.setattr("redrive.topology.deliveries.moves.write_original_route", invent)
    first_finding("message 11 in q0 was published to ('bookings', 'done.done') and says ('another'", [FORGOTTEN])


def test_a_death_in_its_own_queue_excuses_one_forgotten_origin_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy of seed 11286's message 9 expired, the other was parked as it came."""
    assert play_seed(11286).account.excepted["expired with another's deaths"] == 1

    def forget(written: dict[str, Any], letter: Any) -> dict[str, Any]:
        return write_original_route(written, letter) | {
            names.ORIGINAL_EXCHANGE: "",
            names.ORIGINAL_ROUTING_KEY: letter.queue,
        }

    monkeypatch.setattr("redrive.topology.deliveries.moves.write_original_route", forget)
    first_finding("message 9 in q0 was published to ('events', 'd0.done') and says ('', 'q0')", [11286])


def test_a_broker_that_was_down_and_forgets_to_wake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug that a seed found: the stopped server went on waking for deadlines, and passed their effects to nobody."""
    monkeypatch.setattr(Timekeeper, "close", Timekeeper.stop)
    monkeypatch.setattr("redrive.embedded.server.Server.lost", _lost_as_before)
    monkeypatch.setattr(world, "QUIET_S_MAX", ONE_DAY_S)
    assert "not quiet" in first_finding("not quiet", FOUND_BY)


def _lost_as_before(self: Any, client: Any) -> None:
    session = client.session
    connection = session.connection
    session.end()
    if connection is not None:
        self._sessions.pop(connection, None)
    self._clients.pop(session, None)
    self._dirty.pop(session, None)
    self.timekeeper.sync_engine()
    self.finish_turn()
