"""REDRIVE_TEST_URLS: how the brokers in it are read."""

from __future__ import annotations

import pytest
from rig.errors import TestUrlsRefused
from rig.external_brokers import ExternalBroker, connect, parse_test_urls
from rig.management import Management
from rig.ports import Ports


def broker(url: str) -> ExternalBroker:
    (address,) = parse_test_urls(url)
    return ExternalBroker(address=address, version="4.1.2", management=Management(address.management_url))


def test_the_management_api_is_guessed_from_the_host() -> None:
    assert broker("amqp://localhost").management_url == "http://localhost:15672"
    assert broker("amqp://localhost:5673/").management_url == "http://localhost:15672"
    assert broker("amqps://broker.example/").management_url == "https://broker.example:15671"
    assert broker("amqp://[::1]:5672/").management_url == "http://[::1]:15672"


def test_the_management_api_may_be_given_after_a_bar() -> None:
    given = broker("amqp://localhost:5673/|http://localhost:15673/")
    assert given.management_url == "http://localhost:15673"
    assert given.amqp_url() == "amqp://guest:guest@localhost:5673/%2F"


def test_several_brokers_are_separated_by_commas_or_spaces() -> None:
    text = " amqp://a:1/,amqp://b:2/|http://b:3 \n amqp://c:4/ ,"
    assert [(address.host, address.port) for address in parse_test_urls(text)] == [("a", 1), ("b", 2), ("c", 4)]
    assert parse_test_urls("  ") == []


def test_user_and_password_are_unquoted_and_quoted_again() -> None:
    given = broker("amqp://or%40ders:p%2Fw@localhost:5672/ignored")
    assert given.user == "or@ders"
    assert given.address.password == "p/w"
    assert given.amqp_url("a/b") == "amqp://or%40ders:p%2Fw@localhost:5672/a%2Fb"
    assert "p/w" not in repr(given)


def test_the_broker_itself_says_which_version_it_stands_for() -> None:
    assert (broker("amqp://localhost").label, broker("amqp://localhost").profile) == ("4.1", "4.0")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("localhost:5672", "is no amqp:// or amqps:// URL"),
        ("http://localhost:15672", "is no amqp:// or amqps:// URL"),
        ("amqp:///vhost", "is no amqp:// or amqps:// URL"),
        ("amqp://localhost:port/", "is no URL"),
        ("amqp://localhost|localhost:15672", "has no http:// or https:// URL after the |"),
    ],
)
def test_what_is_no_address_is_refused_with_what_to_write(entry: str, reason: str) -> None:
    with pytest.raises(TestUrlsRefused) as refused:
        parse_test_urls(entry)
    assert reason in refused.value.reason
    assert "write amqp://user:password@host:port/" in str(refused.value)


def test_a_refusal_does_not_repeat_the_password() -> None:
    with pytest.raises(TestUrlsRefused) as refused:
        parse_test_urls("ampq://guest:secret@localhost/")
    assert "secret" not in str(refused.value)
    assert "localhost" in str(refused.value)


def test_a_broker_that_does_not_answer_is_refused_by_name() -> None:
    ports = Ports()
    port = ports.reserve()  # held, so that nobody listens there
    try:
        (address,) = parse_test_urls(f"amqp://localhost/|http://127.0.0.1:{port}")
        with pytest.raises(TestUrlsRefused, match=f"has no management API at http://127.0.0.1:{port}"):
            connect(address)
    finally:
        ports.close()
