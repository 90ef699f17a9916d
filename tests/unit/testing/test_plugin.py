"""The pytest plugin as a user meets it: a test of their own, a client of their own, no broker installed."""

import pika
import pika.exceptions
import pytest

from redrive.embedded import FaultRates, Faults
from redrive.testing import ThreadedBroker

pytest_plugins = ["pytester"]

USER_TEST = """
import pika
import pytest

pytest_plugins = ["redrive.testing"]


def publish(channel, queue, message_id):
    properties = pika.BasicProperties(message_id=message_id, delivery_mode=2)
    channel.basic_publish("", queue, b"{}", properties, mandatory=True)


@pytest.mark.rabbitmq(definitions="redrive.yaml", profile="3.10")
def test_a_message_waits_half_an_hour_and_comes_back(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    publish(channel, "orders.wait.30m", "order-7")
    assert [place.queue for place in broker.whereabouts("order-7")] == ["orders.wait.30m"]
    broker.advance("29m59s")
    assert [place.queue for place in broker.whereabouts("order-7")] == ["orders.wait.30m"]
    broker.advance(1)
    assert [place.queue for place in broker.whereabouts("order-7")] == ["orders"]
    assert "expired in orders.wait.30m after 1800 s → orders" in [str(hop) for hop in broker.life("order-7")]
    method, properties, body = channel.basic_get("orders")
    assert properties.headers["x-death"][0]["reason"] == "expired"
    assert broker.profile == "3.10"
    connection.close()


def test_each_test_has_a_broker_of_its_own(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        connection.channel().queue_declare("orders", passive=True)
    connection.close()
"""


@pytest.mark.slow
def test_a_users_own_test_runs_a_30_minute_retry_at_once(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", redrive="queues: {orders: {retry: [30s, 5m, 30m]}}")
    pytester.makepyfile(USER_TEST)
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)


@pytest.mark.rabbitmq(faults=Faults.from_seed(1, FaultRates(close_before=1.0)))
def test_a_test_can_ask_for_bad_luck(broker: ThreadedBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.channel()
    assert [line.partition(", ")[2] for line in broker.faults.fired] == ["channel.open: cut before it"]
    assert broker.depths() == {}


@pytest.mark.slow
def test_an_option_that_the_mark_has_not_is_told_in_one_sentence(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        pytest_plugins = ["redrive.testing"]

        @pytest.mark.rabbitmq(definition="redrive.yaml")
        def test_it(broker):
            pass
    """)
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("@pytest.mark.rabbitmq has no option definition; did you mean `definitions`?")
    result.stdout.no_fnmatch_line("*TypeError*")


def test_time_passes_as_far_as_it_is_asked_to_in_seconds_or_in_words(broker: ThreadedBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("orders", arguments={"x-message-ttl": 60_000})
    channel.confirm_delivery()
    channel.basic_publish("", "orders", b"{}")
    broker.advance("59s")
    broker.advance(0.999)
    assert broker.depths() == {"orders": 1}
    broker.advance("1ms")
    assert broker.depths() == {"orders": 0}
    connection.close()
