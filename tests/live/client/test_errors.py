"""Each refusal of the broker is one exception with code, text and object, and costs no more than its channel."""

from collections.abc import Awaitable, Callable

import pytest
from rig.brokers import Vhost

from redrive import wire
from redrive.client import (
    AccessRefused,
    Channel,
    ChannelClosed,
    Client,
    ConnectionClosed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from redrive.wire import methods
from tests.unit.client.scenario import Notes, ended, run_scenario, wait_until

Doing = Callable[[Channel], Awaitable[object]]
REFUSALS: dict[str, tuple[Doing, type[ChannelClosed], int, str, tuple[str, str]]] = {
    "a missing queue": (
        lambda channel: channel.declare_queue("none", passive=True),
        NotFound,
        404,
        "no queue 'none' in vhost",
        ("queue", "none"),
    ),
    "a missing exchange": (
        lambda channel: channel.declare_exchange("none", passive=True),
        NotFound,
        404,
        "no exchange 'none' in vhost",
        ("exchange", "none"),
    ),
    "a binding to a missing exchange": (
        lambda channel: channel.bind_queue("mine", "none", "k"),
        NotFound,
        404,
        "no exchange 'none' in vhost",
        ("exchange", "none"),
    ),
    "a get from a missing queue": (
        lambda channel: channel.get_message("none"),
        NotFound,
        404,
        "no queue 'none' in vhost",
        ("queue", "none"),
    ),
    "a purge of a missing queue": (
        lambda channel: channel.purge_queue("none"),
        NotFound,
        404,
        "no queue 'none' in vhost",
        ("queue", "none"),
    ),
    "a reserved name": (
        lambda channel: channel.declare_queue("amq.mine"),
        AccessRefused,
        403,
        "queue name 'amq.mine' contains reserved prefix 'amq.*'",
        ("queue", "amq.mine"),
    ),
    "the default exchange": (
        lambda channel: channel.bind_queue("mine", "", "k"),
        AccessRefused,
        403,
        "operation not permitted on the default exchange",
        ("", ""),
    ),
    "another's exclusive queue": (
        lambda channel: channel.declare_queue("locked", passive=True),
        ResourceLocked,
        405,
        "cannot obtain exclusive access to locked queue 'locked'",
        ("queue", "locked"),
    ),
    "other arguments": (
        lambda channel: channel.declare_queue("mine", arguments={"x-max-length": 5}),
        PreconditionFailed,
        406,
        "inequivalent arg 'x-max-length' for queue 'mine'",
        ("queue", "mine"),
    ),
    "another type of exchange": (
        lambda channel: channel.declare_exchange("amq.topic", "direct"),
        PreconditionFailed,
        406,
        "inequivalent arg 'type' for exchange 'amq.topic'",
        ("exchange", "amq.topic"),
    ),
    "an invalid argument": (
        lambda channel: channel.declare_queue("new", arguments={"x-message-ttl": -1}),
        PreconditionFailed,
        406,
        "invalid arg 'x-message-ttl' for queue 'new'",
        ("queue", "new"),
    ),
}


@pytest.mark.live
@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_typed_names_its_object_and_costs_one_channel(vhost: Vhost, case: str) -> None:
    doing, kind, code, text, (object_kind, object_name) = REFUSALS[case]

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as owner, Client(vhost.amqp_url) as client:
            mine = await owner.channel()
            await mine.declare_queue("mine")
            await mine.declare_queue("locked", exclusive=True, durable=False)
            bystander, channel = await client.channel(), await client.channel()
            (error,) = await ended(doing(channel))
            assert type(error) is kind
            assert error.code == code
            assert text in error.text
            assert (error.object_kind, error.object_name) == (object_kind, object_name)
            assert not channel.is_open
            (again,) = await ended(channel.purge_queue("mine"))
            assert type(again) is kind
            assert (await bystander.declare_queue("mine", passive=True)).name == "mine"

    run_scenario(scenario())


@pytest.mark.live
def test_an_unknown_delivery_tag_is_406_and_costs_one_channel(vhost: Vhost) -> None:
    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:
            bystander, channel = await client.channel(), await client.channel()
            connection = await client.connection()
            connection.amqp.ack(channel.number, 99)
            connection.flush()
            await wait_until(lambda: not channel.is_open)
            error = channel.closed.result()
            assert isinstance(error, PreconditionFailed)
            assert "unknown delivery tag 99" in error.text
            await bystander.declare_queue("q")

    run_scenario(scenario())


@pytest.mark.live
def test_a_user_without_permission_is_refused_with_403(vhost: Vhost) -> None:
    user = f"nobody-{vhost.name}"
    vhost.management.put("users", user, body={"password": "secret", "tags": ""})
    try:
        nothing = {"configure": "^$", "write": "^$", "read": "^$"}
        vhost.management.put("permissions", vhost.name, user, body=nothing)

        async def scenario() -> None:
            url = vhost.amqp_url.replace("guest:guest@", f"{user}:secret@")
            async with Client(url) as client:
                forbidden: tuple[Doing, ...] = (
                    lambda channel: channel.declare_queue("q"),
                    lambda channel: channel.declare_exchange("q"),
                    lambda channel: channel.get_message("q"),
                )
                for doing in forbidden:
                    (error,) = await ended(doing(await client.channel()))
                    assert isinstance(error, AccessRefused)
                    assert f"refused for user '{user}'" in error.text
                    assert error.object_name == "q"
                (error,) = await ended(client.consume("q", lambda _: None))
                assert isinstance(error, AccessRefused)

        run_scenario(scenario())
    finally:
        vhost.management.delete("users", user)


@pytest.mark.live
@pytest.mark.parametrize(
    ("case", "code"),
    [("an unknown exchange type", 503), ("a method on a channel that is not open", 504), ("an immediate publish", 540)],
)
def test_a_hard_error_ends_the_connection_with_its_code_and_the_client_comes_back(
    vhost: Vhost, case: str, code: int
) -> None:
    notes = Notes()

    async def scenario() -> None:
        async with Client(vhost.amqp_url, observer=notes) as client:
            connection = await client.connection()
            channel = await client.channel()
            match case:
                case "an unknown exchange type":
                    (error,) = await ended(channel.declare_exchange("x", "no-such-type"))
                    if isinstance(error, ChannelClosed):  # newer brokers are kinder: 406, and only the channel
                        assert error.code == 406
                        return
                    assert isinstance(error, ConnectionClosed)
                case "a method on a channel that is not open":
                    # What our own state tables never let out.
                    payload = methods.encode_method(methods.QueueDeclare(queue="q"))
                    connection.amqp._out.append(wire.encode_frame(1, 77, payload))
                    connection.flush()
                case _:
                    connection.amqp.publish(channel.number, "", "q", wire.EMPTY, b"x", False, True)
                    connection.flush()
            await wait_until(connection.closed.done)
            assert connection.closed.result().code == code
            (error,) = await ended(channel.declare_queue("q"))
            assert isinstance(error, ConnectionClosed)
            assert error.code == code
            await wait_until(lambda: notes.count("client.connected") == 2)
            assert str(notes.last("client.connection_lost")["reason"]).startswith(str(code))
            await (await client.channel()).declare_queue("q")

    run_scenario(scenario())
