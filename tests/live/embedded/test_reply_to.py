"""Direct reply-to addresses on both brokers side by side."""

from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker
from rig.brokers import Vhost

from tests.live.embedded.side_by_side import Wait, on_both

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
