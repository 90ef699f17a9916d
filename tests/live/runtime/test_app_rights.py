"""The least-privilege consumer can do all a consumer does, and declares nothing."""

import asyncio
import secrets

import pika
import pytest

from redrive import App
from redrive.client import Client
from redrive.running import declare_missing, running
from redrive.runtime import RunOptions
from redrive.topology import permissions
from tests.live.client.accounts import drain
from tests.live.runtime.test_flows_shapes import FLOWS, Recorder, compiled, decisions, parking_of, send
from tests.rig.brokers import Vhost
from tests.unit.client.scenario import Notes, run_scenario, wait_until


def add_user(vhost: Vhost, rights: dict[str, str]) -> str:
    """A user with these rights on the vhost; its URL."""
    name = f"redrive-{secrets.token_hex(4)}"
    vhost.management.put("users", name, body={"password": name, "tags": ""})
    vhost.management.put("permissions", vhost.name, name, body=rights)
    parameters = pika.URLParameters(vhost.amqp_url)
    return f"amqp://{name}:{name}@{parameters.host}:{parameters.port}/{vhost.name}"


@pytest.mark.live
@pytest.mark.parametrize("name", ["ladder", "tiered", "service", "requeue"])
def test_the_generated_consumer_rights_are_enough(vhost: Vhost, name: str) -> None:
    flow = FLOWS[name]
    rights = next(one for one in permissions(compiled(flow)) if one["user"] == "redrive-consumer")
    url = add_user(vhost, {key: rights[key] for key in ("configure", "write", "read")})
    notes = Notes()

    async def scenario() -> None:
        recorder = Recorder()
        app = App(compiled(flow))
        app.consumer(flow.queue)(recorder.handle)
        await declare_missing(compiled(flow), lambda _: Client(vhost.amqp_url))
        async with running(app, url=url, observer=notes, options=RunOptions(wait_for_topology=False)):
            await asyncio.to_thread(send, vhost.amqp_url, flow, ["fail", "once", "fine", "park"])
            await wait_until(lambda: (decisions(notes)["ack"], decisions(notes)["park"]) == (2, 2), timeout_s=25)

    run_scenario(scenario(), timeout_s=60)
    vhost.management.delete("users", url.split("://")[1].split(":")[0])
    assert notes.count("runtime.publish_failed") == 0
    assert sorted(held.properties.message_id for held in drain(vhost.amqp_url, parking_of(flow))) == ["fail", "park"]
