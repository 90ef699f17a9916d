"""The least-privilege consumer can do all a consumer does, and declares nothing."""

import asyncio
from typing import Any

import pika
import pytest
from rig.brokers import Vhost

from redrive import App
from redrive.client import Client
from redrive.runtime import AppRunOptions
from redrive.topology import user_permissions
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import drain
from tests.live.runtime.flows import EVERYWHERE, FLOWS, Flow, Recorder, compiled, decisions, parking_of, send
from tests.live.runtime.users import add_user
from tests.unit.client.scenario import Notes, run_scenario, wait_until


def check_rights(vhost: Vhost, name: str) -> None:
    flow = FLOWS[name]
    rights = next(one for one in user_permissions(compiled(flow)) if one["user"] == "redrive-consumer")
    url = add_user(vhost, {key: rights[key] for key in ("configure", "write", "read")})
    notes = Notes()

    async def scenario() -> None:
        recorder = Recorder()
        app = App(compiled(flow))
        app.consumer(flow.queue)(recorder.handle)
        await declare_missing(compiled(flow), lambda _: Client(vhost.amqp_url))
        async with running(app, url=url, observer=notes, options=AppRunOptions(wait_for_topology=False)):
            await asyncio.to_thread(send, vhost.amqp_url, flow, ["fail", "once", "fine", "park"])
            await wait_until(lambda: (decisions(notes)["ack"], decisions(notes)["park"]) == (2, 2), timeout_s=25)

    run_scenario(scenario(), timeout_s=60)
    check_configures_nothing(url, flow)
    vhost.management.delete("users", url.split("://")[1].split(":")[0])
    assert notes.count("runtime.publish_failed") == 0
    assert sorted(held.properties.message_id for held in drain(vhost.amqp_url, parking_of(flow))) == ["fail", "park"]


def check_configures_nothing(url: str, flow: Flow) -> None:
    """Whatever needs the right to configure is refused: on new names, on the empty one, and on every declared one."""
    topology = compiled(flow).topology
    queues, exchanges = [one.name for one in topology.queues], [one.name for one in topology.exchanges]
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        for queue in ("new", "", *queues):
            assert_refused(connection, "queue_declare", queue, durable=True)
        for queue in queues:
            assert_refused(connection, "queue_delete", queue)
        for exchange in ("new", *exchanges):
            assert_refused(connection, "exchange_declare", exchange, "topic", durable=True)
        for exchange in exchanges:
            assert_refused(connection, "exchange_delete", exchange)
    finally:
        connection.close()


def assert_refused(connection: Any, method: str, *arguments: str, **options: bool) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        getattr(connection.channel(), method)(*arguments, **options)
    assert refused.value.reply_code == 403, refused.value.reply_text


@pytest.mark.live
@pytest.mark.parametrize("name", EVERYWHERE)
def test_the_generated_consumer_rights_are_enough_and_configure_nothing(vhost: Vhost, name: str) -> None:
    check_rights(vhost, name)


@pytest.mark.live(versions=("4.3",))
def test_the_generated_consumer_rights_are_enough_for_native(vhost: Vhost) -> None:
    check_rights(vhost, "native")
