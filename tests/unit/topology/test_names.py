"""Names that RabbitMQ refuses, changes or can't reach again are reported before it sees them."""

import pytest

from redrive.topology.names import name_problem


@pytest.mark.parametrize(
    "name", ["orders", "orders.wait.30s", "größe", "x" * 255, "é" * 127, "a b", "AMQ.x", "amqx", "a/b"]
)
@pytest.mark.parametrize("kind", ["queue", "exchange", "vhost", "policy", "routing key"])
def test_a_name_rabbitmq_takes_has_no_problem(name: str, kind: str) -> None:
    assert name_problem(name, kind) is None


@pytest.mark.parametrize(
    ("name", "kind", "phrase"),
    [
        ("", "queue", "is empty, for which RabbitMQ would make up a name"),
        ("", "exchange", "is empty, which is the default exchange's name"),
        ("", "vhost", "is empty"),
        ("x" * 256, "queue", "has 256 bytes as UTF-8, and RabbitMQ takes at most 255 bytes"),
        ("é" * 128, "exchange", "has 256 bytes as UTF-8, and RabbitMQ takes at most 255 bytes"),
        ("x" * 256, "routing key", "has 256 bytes as UTF-8, and RabbitMQ takes at most 255 bytes"),
        ("amq.mine", "queue", "begins with `amq.`, which RabbitMQ keeps for itself"),
        ("amq.", "exchange", "begins with `amq.`, which RabbitMQ keeps for itself"),
        ("a\r\nb", "queue", "holds a line break (control character U+000D), which RabbitMQ removes over AMQP"),
        ("a\tb", "queue", "holds the control character U+0009, which no tool shows"),
        ("a\0b", "vhost", "holds the control character U+0000, which no tool shows"),
        ("a\x85b", "queue", "holds the control character U+0085, which no tool shows"),
        ("a\ud800", "queue", "holds half of a surrogate pair, which is no character and can't be sent"),
    ],
)
def test_a_name_rabbitmq_would_refuse_or_change_gets_a_phrase(name: str, kind: str, phrase: str) -> None:
    assert name_problem(name, kind) == phrase


def test_a_routing_key_may_be_empty_or_begin_with_amq() -> None:
    assert name_problem("", "routing key") is None
    assert name_problem("amq.x", "routing key") is None
