"""AMQP URLs: what they mean, and that a wrong one is refused without showing its password."""

import pytest

from redrive.client import BrokerTarget, InvalidUrl, Tls, parse_url


def test_a_bare_url_is_guest_on_localhost() -> None:
    assert parse_url("amqp://") == BrokerTarget()
    assert parse_url("amqp://localhost/") == BrokerTarget()


def test_everything_can_be_said() -> None:
    target = parse_url(
        "amqps://us%40er:p%2Fw@one:5671,two/%2Fprod?heartbeat=10&connection_timeout=2500&cacertfile=ca.pem"
        "&certfile=me.pem&keyfile=me.key&auth_mechanism=external&channel_max=100&frame_max=16384&name=orders"
    )
    assert target == BrokerTarget(
        hosts=(("one", 5671), ("two", 5671)),
        vhost="/prod",
        user="us@er",
        password="p/w",
        mechanism="EXTERNAL",
        tls=Tls(cacertfile="ca.pem", certfile="me.pem", keyfile="me.key"),
        heartbeat_s=10,
        connect_timeout_s=2.5,
        channel_max=100,
        frame_max=16384,
        name="orders",
    )


@pytest.mark.parametrize(
    ("option", "least", "most"),
    [
        ("heartbeat", 0, 65_535),
        ("connection_timeout", 1, 3_600_000),
        ("channel_max", 1, 65_535),
        ("frame_max", 8_192, 2_147_483_647),
    ],
)
def test_a_number_may_be_what_the_refusal_names_and_no_more(option: str, least: int, most: int) -> None:
    for number in (least, most):
        parse_url(f"amqp://h/?{option}={number}")
    for number in (least - 1, most + 1):
        with pytest.raises(InvalidUrl, match=f"must be a number from {least} to {most}"):
            parse_url(f"amqp://h/?{option}={number}")


def test_ipv6_and_several_hosts() -> None:
    assert parse_url("amqp://[::1]:5673,b:1/v").hosts == (("::1", 5673), ("b", 1))


def test_tls_verifies_unless_turned_off() -> None:
    assert parse_url("amqps://h").tls == Tls(verify=True)
    assert parse_url("amqps://h?verify=verify_none").tls == Tls(verify=False)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://h", "is no AMQP URL; write it like"),
        ("localhost:5672", "is no AMQP URL; write it like"),
        ("amqp://u:secret@h:port/", "no host:port"),
        ("amqp://u:secret@h:99999/", "no host:port"),
        ("amqp://u:secret@h/?heartbeet=1", "unknown option 'heartbeet'; did you mean `heartbeat`?"),
        ("amqp://u:secret@h/?heartbeat=soon", "must be a number from 0 to 65535"),
        ("amqps://u:secret@h/?verify=no", "neither verify_peer nor verify_none"),
        ("amqp://u:secret@h/?auth_mechanism=magic", "the mechanisms are PLAIN, AMQPLAIN, EXTERNAL"),
        ("ftp://u:secret@h", "is no AMQP URL"),
        ("amqp:/u:secret@h", "is no AMQP URL"),
        ("amqp:u:secret@h", "is no AMQP URL"),
        ("amqp//u:secret@h", "is no AMQP URL"),
        ("AMQP:///u:secret@h/v/w", "is no AMQP URL"),
        ("u:secret@h", "is no AMQP URL"),
        ("u:/secret@h", "is no AMQP URL"),
        ("secret@h", "is no AMQP URL"),
        ("u:secret", "is no AMQP URL"),
        ("amqp:/u:secret", "is no AMQP URL"),
        ("amqp://u:secret", "no host:port"),
        ("amqp://u:secret/x@h", "write these in a password or a vhost as %40"),
        ("amqp://u:secret?x@h", "write these in a password or a vhost as %40"),
        ("amqp://u:1/secret@h", "write these in a password or a vhost as %40"),
        ("amqp://u:secret#x@h", "is no AMQP URL"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url: str, sentence: str) -> None:
    with pytest.raises(InvalidUrl) as raised:
        parse_url(url)
    assert sentence in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_target_never_shows_its_password() -> None:
    target = parse_url("amqp://u:secret@h/v")
    assert "secret" not in repr(target)
    assert target.address == "amqp://h:5672/v"
