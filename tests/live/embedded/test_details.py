"""Small rules, each asked of both brokers side by side."""

from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker
from rig.brokers import Vhost

from tests.live.embedded.test_measured import Wait, on_both
from tests.unit.embedded.threaded import broker_in_a_thread

REPLY_TO = "amq.rabbitmq.reply-to"


def declare_reply_addresses(connection: Any, wait: Wait) -> dict[str, Any]:
    """What a declare says of the pseudo-queue, a channel's own address, and addresses that nobody has."""
    requester, other = connection.channel(), connection.channel()
    other.queue_declare("q")
    requester.basic_consume(REPLY_TO, lambda *_: None, auto_ack=True)
    requester.basic_publish("", "q", b"m", pika.BasicProperties(reply_to=REPLY_TO))
    wait(0.1)
    _, properties, _ = other.basic_get("q", auto_ack=True)
    own = properties.reply_to
    seen: dict[str, Any] = {}
    names = {"pseudo-queue": REPLY_TO, "own": own, "with more": f"{own}x", "cut short": own[:-1]}
    for what, name in names.items():
        for passive in (True, False):
            channel = connection.channel()
            try:
                answer = channel.queue_declare(name, passive=passive).method
                seen[f"{what} {passive}"] = (answer.message_count, answer.consumer_count)
            except ChannelClosedByBroker as closed:
                seen[f"{what} {passive}"] = (closed.reply_code, closed.reply_text.replace(name, "NAME"))
    requester.close()
    wait(0.1)
    with pytest.raises(ChannelClosedByBroker) as caught:
        connection.channel().queue_declare(own, passive=True)
    seen["gone"] = caught.value.reply_code
    return seen


@pytest.mark.live
def test_only_the_pseudo_queue_and_an_address_in_use_can_be_declared(vhost: Vhost) -> None:
    real, embedded = on_both(vhost, declare_reply_addresses)
    assert real["cut short True"] == (404, f"NOT_FOUND - no queue 'NAME' in vhost '{vhost.name}'")
    assert _without_vhost(embedded, "/") == _without_vhost(real, vhost.name)


def _without_vhost(seen: dict[str, Any], vhost: str) -> dict[str, Any]:
    return {key: repr(value).replace(f"vhost '{vhost}'", "vhost") for key, value in seen.items()}


def declare_a_forged_address(connection: Any, _wait: Wait) -> tuple[int, str]:
    try:
        connection.channel().queue_declare(f"{REPLY_TO}.forged", passive=True)
    except (ChannelClosedByBroker, ConnectionClosedByBroker) as closed:
        return closed.reply_code, closed.reply_text.partition("' in vhost '")[0]
    return 0, ""


@pytest.mark.live
def test_an_address_that_cannot_be_one_is_refused(vhost: Vhost) -> None:
    real, embedded = on_both(vhost, declare_a_forged_address)
    assert real[0] == (541 if vhost.profile == "4.3" else 404)
    assert embedded == real


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


def publish_as_somebody(url: str) -> str:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        try:
            channel.basic_publish("", "q", b"m", pika.BasicProperties(user_id="somebody"))
        except ChannelClosedByBroker as closed:
            return f"{closed.reply_code} {closed.reply_text}"
        return "taken"


@pytest.mark.live
@pytest.mark.parametrize("tag", ["impersonator", "management"])
def test_a_user_tagged_impersonator_publishes_in_anothers_name(vhost: Vhost, tag: str) -> None:
    user = f"redrive-test-{tag}-{vhost.profile}"
    vhost.management.put("users", user, body={"password": "secret", "tags": tag})
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    vhost.management.put("permissions", vhost.name, user, body=rights)
    try:
        real = publish_as_somebody(vhost.amqp_url.replace("guest:guest", f"{user}:secret"))
    finally:
        vhost.management.delete("users", user)
    with broker_in_a_thread(vhost.profile, users={user: "secret"}, tags={user: [tag]}) as (broker, _):
        assert publish_as_somebody(broker.url) == real
    assert (real == "taken") is (tag == "impersonator")
