"""The order of headers in delivered, redelivered and dead-lettered messages, on both brokers side by side."""

from typing import Any

import pika
import pytest
from rig.brokers import Vhost

from tests.live.embedded.side_by_side import Wait, on_both


def look_at_the_order_of_headers(connection: Any, wait: Wait) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    channel = connection.channel()
    channel.confirm_delivery()
    sent = {"z": 1, "a": 2, "x-e": 3, "B": {"q": 1, "b": 2}, "é": 4, "aa": 5, "10": 6, "9": 7}
    for kind in ("classic", "quorum"):
        channel.queue_declare(f"{kind} dead", durable=True, arguments={"x-queue-type": kind})
        table = {"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{kind} dead"}
        channel.queue_declare(kind, durable=True, arguments=table)
        channel.basic_publish("", kind, b"m", pika.BasicProperties(headers=sent))
        for turn in ("first", "second"):
            method, properties, _ = channel.basic_get(kind)
            seen[f"{kind} {turn}"] = (list(properties.headers), list(properties.headers["B"]))
            channel.basic_reject(method.delivery_tag, requeue=turn == "first")
            wait(0.1)
        _, properties, _ = channel.basic_get(f"{kind} dead")
        headers = properties.headers
        seen[f"{kind} dead"] = (list(headers), list(headers["B"]), list(headers["x-death"][0]))
    return seen


@pytest.mark.live
def test_headers_are_in_the_same_order(vhost: Vhost) -> None:
    real, embedded = on_both(vhost, look_at_the_order_of_headers)
    assert (real["classic first"][0][0] == "z") is (vhost.profile == "3.10")
    assert embedded == real
