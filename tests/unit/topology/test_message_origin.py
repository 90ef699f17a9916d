"""Where a delivery came from: what a handler is shown, and which copies are another queue's."""

from typing import Any

import pytest

from redrive.core import InvalidDeclaration, PlainMessage, Report, Retry
from redrive.core.commands import PublishCopy
from redrive.topology import QueuePlan, compile_declaration, declare

EXPIRED = [{"queue": "e.user.retry.30s", "reason": "expired", "count": 1, "exchange": "e.retry", "routing-keys": ["u"]}]
REJECTED = [
    {"queue": "orders.retry", "reason": "expired", "count": 2, "exchange": "", "routing-keys": ["orders.retry"]},
    {"queue": "orders", "reason": "rejected", "count": 2, "exchange": "events", "routing-keys": ["orders.placed"]},
]
HOME = {"x-original-queue": "e.user", "x-original-exchange": "e", "x-original-routing-key": "user.created"}


def tiered(**options: Any) -> QueuePlan:
    retry = {"shape": "tiered", **options}
    queues = {"e.user": {"from": {"e": ["user.*"]}, "retry": retry}, "e.all": {"from": {"e": ["#"]}, "retry": retry}}
    return compile_declaration(declare(exchanges={"e": "topic"}, queues=queues)).queue("e.all")


def returned(queue: str = "e.all", exchange: str = "e", key: str = "user.retry", **headers: Any) -> PlainMessage:
    told = {**HOME, "x-death": EXPIRED, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return PlainMessage(
        queue=queue,
        exchange=exchange,
        routing_key=key,
        headers={name: value for name, value in told.items() if value is not None},
    )


def test_another_queues_retry_is_foreign_and_ones_own_is_not() -> None:
    assert tiered().is_foreign(returned())
    assert not tiered().is_foreign(returned(x_original_queue="e.all"))


@pytest.mark.parametrize(
    "doubtful",
    [
        returned(x_original_queue=None),
        returned(x_original_queue=7),
        returned(key="user.created"),
        returned(exchange="", key="e.all"),
        returned(x_death=None),
        returned(x_death="broken"),
        returned(x_death=[{"queue": "e.user", "reason": "rejected"}]),
    ],
    ids=["no-home", "odd-home", "a-new-message", "sent-here", "never-waited", "odd-death", "only-rejected"],
)
def test_what_is_not_surely_foreign_is_handled(doubtful: PlainMessage) -> None:
    assert not tiered().is_foreign(doubtful)


def test_without_skip_foreign_nothing_is_foreign() -> None:
    assert not tiered(skip_foreign=False).is_foreign(returned())


def test_a_queue_of_any_shape_bound_to_a_tiered_exchange_skips_foreign_copies() -> None:
    hearing = {"e.all": {"from": {"e": ["#"]}, "retry": ["1m"]}, "plain": {"from": {"e": ["#"]}, "retry": False}}
    user = {"e.user": {"from": {"e": ["user.*"]}, "retry": {"shape": "tiered"}}}
    compiled = compile_declaration(declare(exchanges={"e": "topic"}, queues={**hearing, **user}))
    assert compiled.queue("e.all").is_foreign(returned())
    assert compiled.queue("plain").is_foreign(returned(queue="plain"))
    # Where nobody has declared that e.user's retries come this way, it is a message like any other.
    alone = compile_declaration(declare(exchanges={"e": "topic"}, queues=hearing))
    assert not alone.queue("e.all").is_foreign(returned())
    assert not alone.queue("plain").is_foreign(returned(queue="plain"))


@pytest.mark.parametrize(
    "other",
    [
        returned(exchange="other", key="user.retry"),
        returned(key="payments.retry"),
        returned(x_original_queue="e.payments"),
    ],
    ids=["another-exchange", "another-key", "another-home"],
)
def test_only_the_declared_reentry_route_of_the_queue_it_names_makes_a_copy_foreign(other: PlainMessage) -> None:
    assert not tiered().is_foreign(other)


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (returned(), "user.created"),
        (returned(exchange="", key="e.all"), "user.created"),
        (PlainMessage(queue="orders", exchange="", headers={"x-death": REJECTED}), "orders.placed"),
        (PlainMessage(queue="orders", exchange="events", routing_key="orders.placed"), "orders.placed"),
        (PlainMessage(queue="orders", exchange=""), "orders"),
        (PlainMessage(queue="orders", exchange="e", routing_key="new.event", headers={**HOME}), "new.event"),
        (PlainMessage(queue="orders", exchange="e", routing_key="please.retry"), "please.retry"),
        (PlainMessage(queue="orders", exchange="", headers={"x-original-routing-key": "x" * 256}), "orders"),
        (PlainMessage(queue="orders", exchange="", headers={"x-original-routing-key": 7}), "orders"),
    ],
    ids=[
        "tiered return",
        "copy to the own end",
        "reject loop",
        "first delivery",
        "sent straight to the queue",
        "headers copied to a new message",
        "a key that only looks like a return",
        "no key can be as long",
        "no key at all",
    ],
)
def test_a_handler_sees_the_key_the_message_was_published_with(message: PlainMessage, key: str) -> None:
    assert tiered().handler_routing_key(message) == key


def test_a_copy_names_the_queue_that_failed_even_if_its_headers_name_another() -> None:
    """Else this queue would skip its own retry when it comes back."""
    (copy, _) = tiered(skip_foreign=False).commands(
        Retry(delay_ms=30_000, not_before_ms=30_000), returned(), Report(retries=1, now_ms=0)
    )
    assert isinstance(copy, PublishCopy)
    assert copy.set_headers == {**HOME, "x-original-queue": "e.all", "x-retry-count": 2}


def test_a_new_message_with_another_ones_headers_gets_its_own() -> None:
    plan = compile_declaration(declare(queues={"orders": {"retry": ["1m"]}})).queue("orders")
    message = PlainMessage(queue="orders", exchange="e", routing_key="new.event", headers={**HOME})
    (copy, _) = plan.commands(Retry(delay_ms=60_000, not_before_ms=0), message, Report(retries=0, now_ms=0))
    assert isinstance(copy, PublishCopy)
    assert copy.set_headers == {
        "x-retry-count": 1,
        "x-original-queue": "orders",
        "x-original-exchange": "e",
        "x-original-routing-key": "new.event",
    }


def test_a_queue_that_is_not_declared_is_refused_with_the_nearest_name() -> None:
    compiled = compile_declaration(declare(queues={"orders": {"retry": ["1m"]}}))
    with pytest.raises(InvalidDeclaration, match=r"queue ordres: is not declared.*did you mean `orders`"):
        compiled.queue("ordres")
