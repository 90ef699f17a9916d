"""The user-id property, on both brokers side by side."""

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker
from rig.brokers import Vhost

from tests.unit.embedded.threaded import broker_in_a_thread


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
