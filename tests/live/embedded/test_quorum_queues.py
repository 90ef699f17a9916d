"""Quorum queues on both brokers side by side: the consumer timeout, a prefetch of zero, purging held dead letters."""

import time
from typing import Any

import pytest
from rig.brokers import Vhost

from tests.live.embedded.relaxations import masked
from tests.live.embedded.side_by_side import Wait, listen, on_both


def hold_a_message_too_long(connection: Any, wait: Wait) -> list[Any]:
    heard: list[Any] = []
    slow, other = connection.channel(), connection.channel()
    other.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum", "x-consumer-timeout": 1500})
    slow.add_on_cancel_callback(lambda frame: heard.append(("cancelled", frame.method.consumer_tag)))
    slow.basic_consume("q", lambda *delivery: heard.append(("got", delivery[3])), consumer_tag="slow")
    other.confirm_delivery()
    other.basic_publish("", "q", b"m")
    listen(connection, 0.3)
    wait(2)
    listen(connection, 0.3)
    method, properties, _ = other.basic_get("q", auto_ack=True)
    heard.append((method.redelivered, masked(properties.headers)))
    slow.basic_ack(1)
    answer = slow.queue_declare("q", passive=True).method  # the late ack did not close the channel
    return [*heard, (answer.message_count, answer.consumer_count)]


@pytest.mark.live(versions=("4.3",))
def test_a_quorum_queue_takes_back_what_is_held_too_long_and_forgives_a_late_ack(vhost: Vhost) -> None:
    real, embedded = on_both(vhost, hold_a_message_too_long)
    assert real[:2] == [("got", b"m"), ("cancelled", "slow")]
    assert embedded == real


def consume_without_prefetch(connection: Any, wait: Wait) -> int:
    count = 0

    def take(*_delivery: Any) -> None:
        nonlocal count
        count += 1

    channel = connection.channel()
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    for _ in range(2010):
        channel.basic_publish("", "q", b"m")
    deadline = time.monotonic() + 30
    while channel.queue_declare("q", passive=True).method.message_count < 2010:
        assert time.monotonic() < deadline
        wait(0.1)
    channel.basic_consume("q", take)
    while count < 2000:
        assert time.monotonic() < deadline
        listen(connection, 0.1)
    listen(connection, 0.5)
    return count


@pytest.mark.live
def test_a_prefetch_of_zero_is_2000_in_a_quorum_queue(vhost: Vhost) -> None:
    real, embedded = on_both(vhost, consume_without_prefetch)
    assert (real, embedded) == (2000, 2000)


def purge_what_is_held(connection: Any, wait: Wait) -> int:
    channel = connection.channel()
    table = {
        "x-queue-type": "quorum",
        "x-overflow": "reject-publish",
        "x-dead-letter-strategy": "at-least-once",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "nobody",
    }
    channel.queue_declare("q", durable=True, arguments=table)
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"m")
    method, _, _ = channel.basic_get("q")
    channel.basic_reject(method.delivery_tag, requeue=False)
    wait(1)
    count: int = channel.queue_purge("q").method.message_count
    return count


@pytest.mark.live
def test_purging_counts_held_dead_letters_on_4_3_only(vhost: Vhost) -> None:
    real, embedded = on_both(vhost, purge_what_is_held)
    assert (real, embedded) == ((1, 1) if vhost.profile == "4.3" else (0, 0))
