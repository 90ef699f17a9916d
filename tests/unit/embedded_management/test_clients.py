"""Clients, users and permissions: what is told of them, and what a client hears when it has to go."""

import pytest

from redrive.client import Client, Delivery
from redrive.embedded import EmbeddedBroker
from tests.unit.embedded_management.http_client import ApiClient
from tests.unit.embedded_management.management_broker import run


class Losses:
    """An observer that keeps why connections were lost."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def note(self, event: str, /, **fields: object) -> None:
        if event == "client.connection_lost":
            self.reasons.append(str(fields["reason"]))


def keep(_: Delivery) -> None:
    """A handler that holds on to what it gets."""


def test_a_connection_tells_what_its_client_said_of_itself() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        async with Client(broker.url, name="checkout"), Client(broker.url, name="billing", dial=broker.dial):
            shown = (await api.ask("GET", "connections")).json
            said = [one["client_properties"] for one in shown]
            assert [(one["product"], one["connection_name"]) for one in said] == [
                ("Redrive", "checkout"),
                ("Redrive", "billing"),
            ]
            assert said[0]["capabilities"]["consumer_cancel_notify"] is True
            assert [one["peer_host"] for one in shown] == ["127.0.0.1", "memory"]

    run(steps)


def test_consumers_are_shown_with_the_arguments_they_came_with_until_they_go() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        async with Client(broker.url) as client:
            channel = await client.channel()
            await channel.declare_queue("q")
            arguments = {"x-priority": 5, "x-note": "hello"}
            first = await client.consume("q", keep, prefetch=7, arguments=arguments)
            await client.consume("q", keep, no_ack=True)
            shown = (await api.ask("GET", "consumers", "/")).json
            assert [(one["prefetch_count"], one["ack_required"], one["arguments"]) for one in shown] == [
                (7, True, arguments),
                (100, False, {}),
            ]
            details = (await api.ask("GET", "queues", "/", "q")).json["consumer_details"]
            assert details == shown
            await first.close()
            assert [one["arguments"] for one in (await api.ask("GET", "consumers")).json] == [{}]
            assert (await api.ask("GET", "consumers", "nope")).status == 404

    run(steps)


def test_a_deleted_vhost_goes_with_its_messages_and_tells_its_clients_and_no_others() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        await api.ask("PUT", "vhosts", "v")
        here, there = Losses(), Losses()
        async with Client(broker.url, observer=here) as client:
            channel = await client.channel()
            await channel.declare_queue("q")
            other = Client(broker.url_for("v"), observer=there)
            async with other:
                elsewhere = await other.channel()
                dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 1000}
                await elsewhere.declare_queue("dead")
                await elsewhere.declare_queue("q", arguments=dead)
                assert await (await other.publisher()).publish("", "q", b"x")
                assert (await api.ask("DELETE", "vhosts", "v")).status == 204
                await (await client.connection()).update_secret("guest", "a round trip")
                assert there.reasons == ["320 CONNECTION_FORCED - vhost 'v' is deleted"]
            await broker.advance(10)
            assert list(broker.engine.vhosts) == ["/"]
            assert (broker.engine.unacked_count, broker.depths()) == (0, {"q": 0})
            assert here.reasons == []
        with pytest.raises(KeyError):
            broker.remove_vhost("v")

    run(steps)


def test_what_everybody_may_do_is_granted_and_everything_else_refused_in_words() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        of_guest = ("permissions", "/", "guest")
        assert (await api.ask("PUT", *of_guest, body=everything)).status == 204
        assert (await api.ask("GET", *of_guest)).json == {"user": "guest", "vhost": "/", **everything}
        for method, path, body in (
            ("PUT", of_guest, {**everything, "write": "^$"}),
            ("DELETE", of_guest, None),
            ("PUT", ("users", "another"), {"password": "x", "tags": ""}),
            ("DELETE", ("users", "guest"), None),
        ):
            answer = await api.ask(method, *path, body=body)
            assert answer.status == 400
            assert "the embedded broker" in answer.json["reason"]
        assert (await api.ask("GET", "users", "guest", "permissions")).json == [
            {"user": "guest", "vhost": "/", **everything}
        ]
        assert [one["name"] for one in (await api.ask("GET", "users")).json] == ["guest"]

    run(steps)
