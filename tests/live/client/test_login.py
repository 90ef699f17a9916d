"""Which credentials are accepted, how refusals are reported, and what the broker shows of the connection."""

from typing import Any

import pytest
from rig.brokers import Broker, Vhost

from redrive.client import AuthenticationFailed, Client, ConnectionFailed, parse_url
from tests.live.client.accounts import wait_for
from tests.unit.client.scenario import Notes, ended, run_scenario, wait_until


@pytest.mark.live
def test_a_wrong_password_is_refused_with_403(vhost: Vhost) -> None:
    async def scenario() -> None:
        for mechanism in ("PLAIN", "AMQPLAIN"):
            url = vhost.amqp_url.replace("guest:guest@", "guest:wrong@") + f"?auth_mechanism={mechanism}"
            (error,) = await ended(Client(url).start())
            assert isinstance(error, AuthenticationFailed)
            assert "403 ACCESS_REFUSED" in str(error)
            assert "wrong" not in str(error)

    run_scenario(scenario())


@pytest.mark.live
def test_an_unknown_vhost_is_refused_with_530(rabbit: Broker) -> None:
    async def scenario() -> None:
        (error,) = await ended(Client(rabbit.amqp_url("no-such-vhost")).start())
        assert isinstance(error, AuthenticationFailed)
        assert "530 NOT_ALLOWED - vhost no-such-vhost not found" in str(error)

    run_scenario(scenario())


@pytest.mark.live
def test_a_vhost_of_others_is_refused_with_530(vhost: Vhost) -> None:
    user = f"stranger-{vhost.name}"
    vhost.management.put("users", user, body={"password": "secret", "tags": ""})
    try:

        async def scenario() -> None:
            (error,) = await ended(Client(vhost.amqp_url.replace("guest:guest@", f"{user}:secret@")).start())
            assert isinstance(error, AuthenticationFailed)
            assert "530 NOT_ALLOWED" in str(error)

        run_scenario(scenario())
    finally:
        vhost.management.delete("users", user)


@pytest.mark.live
def test_external_without_its_plugin_is_refused_by_name(vhost: Vhost) -> None:
    async def scenario() -> None:
        (error,) = await ended(Client(vhost.amqp_url + "?auth_mechanism=EXTERNAL").start())
        assert isinstance(error, AuthenticationFailed)
        assert str(error).startswith("the broker does not offer EXTERNAL, only ")

    run_scenario(scenario())


@pytest.mark.live
def test_without_a_listener_the_error_has_one_sentence_for_each_host(rabbit: Broker) -> None:
    async def scenario() -> None:
        (error,) = await ended(Client("amqp://127.0.0.1:1,127.0.0.1:2/").start())
        assert isinstance(error, ConnectionFailed)
        assert len(error.reasons) == 2
        assert error.reasons[0].startswith("127.0.0.1:1: ")
        assert "onnect" in error.reasons[1]

    run_scenario(scenario())


@pytest.mark.live
def test_the_broker_shows_our_name_and_capabilities(vhost: Vhost) -> None:
    async def scenario() -> None:
        url = vhost.amqp_url + "?heartbeat=17&channel_max=99&frame_max=16384&name=one"
        other = vhost.amqp_url + "?auth_mechanism=AMQPLAIN"
        async with Client(url) as client, Client(other, name="two"):
            assert (await client.connection()).server_version == vhost.version
            shown = await wait_for(lambda: shown_connections(vhost, "one", "two"))
            one, two = shown["one"], shown["two"]
            assert (one["auth_mechanism"], two["auth_mechanism"]) == ("PLAIN", "AMQPLAIN")
            assert (one["timeout"], one["channel_max"], one["frame_max"]) == (17, 99, 16384)
            assert (two["timeout"], two["channel_max"], two["frame_max"]) == (30, 2047, 131_072)
            properties = one["client_properties"]
            assert (properties["product"], properties["platform"]) == ("Redrive", "Python")
            assert properties["capabilities"] == {
                "authentication_failure_close": True,
                "basic.nack": True,
                "connection.blocked": True,
                "consumer_cancel_notify": True,
                "publisher_confirms": True,
            }

    run_scenario(scenario(), timeout_s=60)


def shown_connections(vhost: Vhost, *names: str) -> dict[str, Any] | None:
    """The vhost's connections by the name they gave themselves, once all are shown."""
    found = {
        each["client_properties"]["connection_name"]: each
        for each in vhost.management.get("vhosts", vhost.name, "connections")
        if "connection_name" in each.get("client_properties", {})
    }
    return found if set(names) <= set(found) else None


@pytest.mark.live
def test_a_new_secret_is_sent_to_the_broker_and_used_for_the_next_connection(vhost: Vhost) -> None:
    user = f"rotated-{vhost.name}"
    vhost.management.put("users", user, body={"password": "old", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    vhost.management.put("permissions", vhost.name, user, body=everything)
    notes = Notes()
    try:

        async def scenario() -> None:
            url = vhost.amqp_url.replace("guest:guest@", f"{user}:old@")
            async with Client(url, observer=notes) as client:
                vhost.management.put("users", user, body={"password": "new", "tags": ""})
                await client.update_secret("new", "rotated")
                await (await client.channel()).declare_queue("q")
                (await client.connection()).give_up("the cable was pulled")
                await wait_until(lambda: notes.count("client.connected") == 2)
                await (await client.channel()).declare_queue("q")

        run_scenario(scenario())
    finally:
        vhost.management.delete("users", user)


@pytest.mark.live
def test_credentials_rotated_under_a_running_client_are_waited_for(vhost: Vhost) -> None:
    user = f"waiting-{vhost.name}"
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    vhost.management.put("users", user, body={"password": "old", "tags": ""})
    vhost.management.put("permissions", vhost.name, user, body=everything)
    notes = Notes()
    try:

        async def scenario() -> None:
            async with Client(vhost.amqp_url.replace("guest:guest@", f"{user}:old@"), observer=notes) as client:
                publisher = await client.publisher()
                vhost.management.put("users", user, body={"password": "new", "tags": ""})
                (await client.connection()).give_up("the cable was pulled")
                await wait_until(lambda: notes.count("client.connect_failed") >= 2)
                assert "403 ACCESS_REFUSED" in str(notes.last("client.connect_failed")["reason"])
                vhost.management.put("users", user, body={"password": "old", "tags": ""})
                await wait_until(lambda: notes.count("client.connected") == 2)
                assert type(await publisher.publish("", "nowhere", b"", mandatory=False)).__name__ == "Confirmed"

        run_scenario(scenario())
    finally:
        vhost.management.delete("users", user)


@pytest.mark.live
def test_a_connection_refused_by_a_limit_says_so(vhost: Vhost) -> None:
    vhost.management.put("vhost-limits", vhost.name, "max-connections", body={"value": 0})

    async def scenario() -> None:
        (error,) = await ended(Client(parse_url(vhost.amqp_url)).start())
        assert isinstance(error, ConnectionFailed)
        assert "limit" in str(error)

    run_scenario(scenario())
