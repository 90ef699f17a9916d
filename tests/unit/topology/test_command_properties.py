"""What holds for every shape, every decision and every message, however odd its headers are."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from redrive.core import (
    PAUSE_MS_MAX,
    AckDelivery,
    Decision,
    Defer,
    Done,
    Parked,
    ParkReason,
    Pause,
    PlainMessage,
    PublishCopy,
    RejectDelivery,
    Report,
    Requeued,
    RequeueDelivery,
    Retry,
    Skip,
    count_retries,
    has_odd_deaths,
)
from redrive.topology import QueuePlan, compile_declaration, declare

NOW_MS = 1_700_000_000_000
DLX = {"x-dead-letter-exchange": "amq.fanout"}


def _plan(name: str, retry: Any, **more: Any) -> QueuePlan:
    queue = {"from": {"e": ["orders.#"]}, "retry": retry, **more}
    compiled = compile_declaration(declare(exchanges={"e": "topic"}, queues={name: queue}))
    return compiled.queue(name)


PLANS = [
    _plan("orders", ["30s", "5m", "30m"]),
    _plan("orders", {"delays": ["10m", "1s", "10m", "1m"], "attempts": 9}),
    _plan("orders", {"shape": "tiered"}),
    _plan("orders", {"shape": "tiered", "park": "reject", "skip_foreign": False}, type="quorum"),
    _plan("wms.queue.wms-a", {"shape": "service", "service": "wms-a"}),
    _plan("orders", {"shape": "per-queue"}),
    _plan("orders", {"shape": "per-queue"}, type="quorum"),
    _plan("orders", {"shape": "quorum"}),
    _plan("orders", {"shape": "requeue"}),
    _plan("orders", {"shape": "requeue", "park": "reject"}, type="quorum"),
    _plan("orders", {"shape": "requeue", "requeue": "nack"}),
    _plan("orders", {"shape": "native"}),
    _plan("orders", False),
    _plan("orders", False, arguments=DLX),
    _plan("orders", False, type="stream"),
]

ODD_DEATHS = PlainMessage(queue="orders", exchange="e", routing_key="orders.placed", headers={"x-death": "none"})
"""Not rejected as it is: a copy without these deaths is, on its next run."""

delays_ms = st.one_of(
    st.sampled_from([0, 1, 999, 1_000, 5_000, 30_000, 60_000, 60_001, 300_000, 600_000, 1_800_000, 1_800_001]),
    st.integers(0, 10**10),
)
odd = st.one_of(st.none(), st.booleans(), st.integers(-5, 40), st.text(max_size=8), st.binary(max_size=8), st.just([]))
deaths = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "queue": st.sampled_from(["orders", "orders.wait.30s"]),
                "reason": st.sampled_from(["rejected", "expired"]),
            },
            optional={"count": odd, "exchange": odd, "routing-keys": st.one_of(odd, st.lists(odd, max_size=2))},
        ),
        st.text(max_size=3),
    ),
    max_size=3,
)
letter_headers = st.fixed_dictionaries(
    {},
    optional={
        "x-retry-count": odd,
        "x-original-queue": odd,
        "x-original-exchange": odd,
        "x-original-routing-key": odd,
        "x-redrive-attempts-before": odd,
        "x-redrive-not-before": odd,
        "x-redrive-history": odd,
        "x-delivery-count": odd,
        "x-death": st.one_of(odd, deaths),
        "CC": odd,
    },
)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    delay_ms = draw(delays_ms)
    possible: list[Decision] = [
        Done(),
        Skip(),
        Requeued(pause_ms=min(delay_ms, PAUSE_MS_MAX)),
        Retry(delay_ms=delay_ms, not_before_ms=NOW_MS + delay_ms),
        Defer(wait_ms=delay_ms, not_before_ms=NOW_MS + delay_ms),
        Parked(reason=draw(st.sampled_from(ParkReason))),
    ]
    return draw(st.sampled_from(possible))


@st.composite
def cases(draw: st.DrawFn) -> tuple[QueuePlan, Decision, PlainMessage]:
    plan = draw(st.sampled_from(PLANS))
    exchange, key = draw(st.sampled_from([("e", "orders.placed"), ("", plan.name), ("e", "orders.retry")]))
    message = PlainMessage(queue=plan.name, exchange=exchange, routing_key=key, headers=draw(letter_headers))
    return plan, draw(decisions()), message


def report_on(plan: QueuePlan, message: PlainMessage) -> Report:
    return Report(retries=count_retries(message, plan.counted_by), now_ms=NOW_MS)


@given(cases())
def test_the_last_command_settles_the_delivery_and_no_other_does(
    case: tuple[QueuePlan, Decision, PlainMessage],
) -> None:
    plan, decision, message = case
    commands = plan.commands(decision, message, report_on(plan, message))
    settling = [isinstance(command, AckDelivery | RejectDelivery | RequeueDelivery) for command in commands]
    assert settling == [*[False] * (len(commands) - 1), True]


@given(cases())
def test_nothing_but_a_finished_message_is_acked_without_a_copy_before_it(
    case: tuple[QueuePlan, Decision, PlainMessage],
) -> None:
    plan, decision, message = case
    commands = plan.commands(decision, message, report_on(plan, message))
    copies = [command for command in commands if isinstance(command, PublishCopy)]
    if isinstance(decision, Done | Skip):
        assert commands == (AckDelivery(),)
    elif AckDelivery() in commands:
        assert len(copies) == 1
        assert commands[-2] is copies[0]
    else:
        assert copies == []


@given(cases())
def test_a_reject_always_has_somewhere_to_go(case: tuple[QueuePlan, Decision, PlainMessage]) -> None:
    plan, decision, message = case
    if RejectDelivery() in plan.commands(decision, message, report_on(plan, message)):
        assert plan.dead_letters
        assert isinstance(decision, Retry | Parked)


@given(cases())
def test_no_pause_is_longer_than_a_minute(case: tuple[QueuePlan, Decision, PlainMessage]) -> None:
    plan, decision, message = case
    for command in plan.commands(decision, message, report_on(plan, message)):
        assert not isinstance(command, Pause) or 0 < command.pause_ms <= PAUSE_MS_MAX


@given(cases())
def test_a_copy_goes_to_a_wait_to_parking_or_to_the_queues_own_end(
    case: tuple[QueuePlan, Decision, PlainMessage],
) -> None:
    plan, decision, message = case
    for command in plan.commands(decision, message, report_on(plan, message)):
        if not isinstance(command, PublishCopy):
            continue
        way = (command.exchange, command.routing_key)
        routes = plan.routes
        if isinstance(decision, Parked) and routes is not None:
            assert command.exchange == routes.parking.exchange
            assert routes.parking.routing_key in (None, command.routing_key)
        else:
            waits = () if routes is None else routes.waits
            assert way in {("", plan.name), *((wait.exchange, wait.routing_key) for wait in waits)}


@given(cases())
def test_a_retry_copy_drops_x_death_and_a_parked_copy_keeps_what_a_broker_wrote(
    case: tuple[QueuePlan, Decision, PlainMessage],
) -> None:
    plan, decision, message = case
    for command in plan.commands(decision, message, report_on(plan, message)):
        if isinstance(command, PublishCopy):
            dies = isinstance(decision, Parked) and plan.routes is not None
            # RabbitMQ 3.10 crashes on deaths that it did not write, if the message dies again with them.
            keeps = dies and not has_odd_deaths(message.header("x-death"))
            assert ("x-death" not in command.drop_headers) is keeps
            assert "x-death" not in command.set_headers
            assert {"CC", "BCC", "x-delivery-count"} <= command.drop_headers
            assert command.drop_headers.isdisjoint(command.set_headers)


@given(cases())
def test_a_copy_waits_no_less_than_asked_and_has_its_time_only_if_no_wait_is_long_enough(
    case: tuple[QueuePlan, Decision, PlainMessage],
) -> None:
    plan, decision, message = case
    if not isinstance(decision, Retry | Defer):
        return
    delay_ms = decision.delay_ms if isinstance(decision, Retry) else decision.wait_ms
    if isinstance(decision, Retry) and plan.routes is None and plan.dead_letters:
        # Without retries it is rejected; where its x-death is malformed, one copy without that comes first, at once.
        delay_ms = 0
    commands = plan.commands(decision, message, report_on(plan, message))
    for command in commands:
        if not isinstance(command, PublishCopy):
            continue
        waits = () if plan.routes is None else plan.routes.waits
        ttl_ms = {(wait.exchange, wait.routing_key): wait.delay_ms for wait in waits}.get(
            (command.exchange, command.routing_key), 0
        )
        held_ms = sum(one.pause_ms for one in commands if isinstance(one, Pause))
        if command.expiration_ms is not None:
            assert 0 < command.expiration_ms < ttl_ms
        waited_ms = held_ms + (ttl_ms if command.expiration_ms is None else command.expiration_ms)
        longest_ms = max((wait.delay_ms for wait in waits), default=PAUSE_MS_MAX)
        assert ("x-redrive-not-before" in command.set_headers) is (delay_ms > longest_ms)
        if delay_ms <= longest_ms:
            assert waited_ms == delay_ms
        else:
            assert (waited_ms, command.set_headers["x-redrive-not-before"]) == (longest_ms, NOW_MS + delay_ms)


@given(cases())
@example((PLANS[-2], Parked(reason=ParkReason.ASKED), ODD_DEATHS))
def test_a_copy_is_counted_once_for_a_failed_run_and_not_at_all_otherwise(
    case: tuple[QueuePlan, Decision, PlainMessage],
) -> None:
    plan, decision, message = case
    before = count_retries(message, plan.counted_by)
    for command in plan.commands(decision, message, report_on(plan, message)):
        if not isinstance(command, PublishCopy):
            continue
        kept = {name: value for name, value in message.headers.items() if name not in command.drop_headers}
        arrived = PlainMessage(queue=plan.name, exchange="", headers={**kept, **command.set_headers})
        if isinstance(decision, Parked) and plan.routes is not None:
            assert command.set_headers["x-retry-count"] == command.set_headers["x-final-retry-count"] == before
        else:
            counted = 1 if isinstance(decision, Retry | Parked) else 0
            assert count_retries(arrived, plan.counted_by) == before + counted
        assert command.set_headers["x-original-queue"] == plan.name
        assert plan.handler_routing_key(arrived) == plan.handler_routing_key(message)
