"""The embedded management API and the real one, side by side: the same import, and the same answers about it.

Compared is every key the embedded one has. Left out by it, and so not looked for: rates, statistics, memory, garbage
collection, `user_who_performed_action`; and by 4.3, where the embedded one tells it, an exchange's `internal` in
definitions.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pika
import pytest
from rig.brokers import Vhost
from rig.errors import ManagementRefused
from rig.management import Management

from redrive.embedded import EmbeddedBroker
from redrive.embedded.management import ManagementServer
from redrive.topology import compile_declaration, read_declaration, write_definitions

EXAMPLES = Path(__file__).parents[3] / "examples"
EVERYWHERE = ("freeflow", "event-bus", "file-pipeline", "ratatoskr", "bookly", "ladder")
OF_THE_NODE = {"node", "leader", "members", "online"}
STATISTICS_S_MAX = 20.0
LATE = frozenset(
    {
        "consumers",
        "delayed_retry",
        "delivery_limit",
        "effective_policy_definition",
        "exclusive_consumer_tag",
        "message_bytes",
        "message_bytes_dlx",
        "message_bytes_ready",
        "message_bytes_unacknowledged",
        "messages",
        "messages_active_priorities",
        "messages_by_priority",
        "messages_delayed",
        "messages_dlx",
        "messages_ready",
        "messages_ready_returned",
        "readers",
        "messages_unacknowledged",
        "operator_policy",
        "policy",
        "single_active_consumer_tag",
        "node",
        "state",
    }
)
"""What the real broker shows of a queue only once its statistics have come round, seconds later."""
LISTS = ("queues", "exchanges", "bindings", "policies", "operator-policies")


def ask_embedded(profile: str, vhost: str, definitions: Any) -> dict[str, Any]:
    """What the embedded broker answers after an import."""

    async def steps() -> dict[str, Any]:
        async with EmbeddedBroker(profile) as broker, ManagementServer(broker) as management:
            return await asyncio.to_thread(ask, Management(management.url), vhost, definitions)

    return asyncio.run(steps())


def ask(management: Management, vhost: str, definitions: Any) -> dict[str, Any]:
    management.put("vhosts", vhost)
    management.post("definitions", body=definitions)
    answers: dict[str, Any] = {name: management.get(name, vhost) for name in LISTS}
    answers["definitions"] = management.get("definitions", vhost)
    return answers


def ordered(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        items, key=lambda item: [str(item.get(key)) for key in ("name", "source", "destination", "routing_key")]
    )


def differences(ours: Any, theirs: Any, place: str, late: frozenset[str] = LATE) -> list[str]:
    """Where theirs is not what ours says."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key, value in ours.items():
            if key in OF_THE_NODE or (key == "internal" and place.startswith("definitions")):
                continue
            if key in theirs:
                found += differences(value, theirs[key], f"{place}.{key}", late)
            elif key not in late and value is not None:  # in lists 4.x leaves out what is null
                found.append(f"{place}.{key} is ours alone: {value!r}")
        return found
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        if ours and isinstance(ours[0], dict):
            ours, theirs = ordered(ours), ordered(theirs)
        return [
            text
            for number, (one, other) in enumerate(zip(ours, theirs, strict=True))
            for text in differences(one, other, f"{place}[{number}]", late)
        ]
    return [] if ours == theirs else [f"{place}: ours {ours!r}, theirs {theirs!r}"]


def check(vhost: Vhost, example: str) -> None:
    declaration = read_declaration((EXAMPLES / example / "redrive.yaml").read_text(), file=example)
    definitions = json.loads(write_definitions(compile_declaration(declaration, vhost=vhost.name).topology))
    theirs = ask(vhost.management, vhost.name, definitions)
    ours = ask_embedded(vhost.broker.profile, vhost.name, definitions)
    metadata = theirs["definitions"]  # the rig describes its vhosts
    for described in ("metadata", "description"):
        metadata.pop(described, None)
        ours["definitions"].pop(described, None)
    assert [text for name, answer in ours.items() for text in differences(answer, theirs[name], name)] == []


@pytest.mark.live
@pytest.mark.parametrize("example", EVERYWHERE)
def test_an_imported_example_is_shown_as_the_real_broker_shows_it(vhost: Vhost, example: str) -> None:
    check(vhost, example)


@pytest.mark.live(versions=("4.3",))
def test_native_is_shown_as_4_3_shows_it(vhost: Vhost) -> None:
    check(vhost, "native")


def statistics(management: Management, vhost: str) -> Any:
    """The queues of a vhost, once it is known of each that it holds one message."""
    patience = time.monotonic() + STATISTICS_S_MAX
    while time.monotonic() < patience:
        queues = management.get("queues", vhost)
        if all(queue.get("messages") == 1 and queue.get("policy") for queue in queues):
            return queues
        time.sleep(0.5)
    pytest.fail("the broker's statistics do not come round")


@pytest.mark.live
def test_a_queues_figures_are_the_real_brokers_once_it_has_them(vhost: Vhost) -> None:
    body: Any = {
        "vhosts": [{"name": vhost.name}],
        "queues": [
            {"name": "classic", "arguments": {"x-max-length": 7}},
            {"name": "quorum", "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 3}},
            {"name": "plain", "arguments": {"x-queue-type": "quorum"}},
        ],
        "policies": [
            {"name": "p", "pattern": "", "definition": {"max-length": 5}, "priority": 0, "apply-to": "queues"}
        ],
    }
    for one in body["queues"]:
        one |= {"vhost": vhost.name, "durable": True, "auto_delete": False}
    body["policies"][0]["vhost"] = vhost.name
    vhost.management.post("definitions", body=body)
    for name in ("classic", "quorum", "plain"):
        publish: Any = {"routing_key": name, "payload": "hello", "payload_encoding": "string", "properties": {}}
        vhost.management.post("exchanges", vhost.name, "amq.default", "publish", body=publish)

    async def steps() -> Any:
        async with EmbeddedBroker(vhost.broker.profile) as broker, ManagementServer(broker) as server:
            management = Management(server.url)
            await asyncio.to_thread(management.post, "definitions", body=body)
            for name in ("classic", "quorum", "plain"):
                broker.engine.connect(vhost.name, "guest").open_channel(1).publish("", name, b"\0\0", b"hello")
            return await asyncio.to_thread(management.get, "queues", vhost.name)

    ours = asyncio.run(steps())
    theirs = statistics(vhost.management, vhost.name)
    assert differences(ours, theirs, "queues", frozenset()) == []


def ask_about_a_stream(management: Management, vhost: str) -> list[Any]:
    """A stream loaded from definitions: how it is shown, and what can't be done with it."""
    table = {"x-queue-type": "stream", "x-max-age": "1h"}
    stream = {"name": "s", "vhost": vhost, "durable": True, "auto_delete": False, "arguments": table}
    answers: list[Any] = [ask(management, vhost, {"vhosts": [{"name": vhost}], "queues": [stream]})["queues"]]
    for verb, place, body in (
        ("post", ("queues", vhost, "s", "get"), {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}),
        ("delete", ("queues", vhost, "s", "contents"), None),
    ):
        with pytest.raises(ManagementRefused) as refused:
            getattr(management, verb)(*place, **({} if body is None else {"body": body}))
        answers.append((refused.value.status, str(refused.value)))
    return answers


@pytest.mark.live
def test_definitions_with_a_stream_load_and_it_is_shown_and_refused_alike(vhost: Vhost) -> None:
    async def steps() -> list[Any]:
        async with EmbeddedBroker(vhost.broker.profile) as broker, ManagementServer(broker) as management:
            return await asyncio.to_thread(ask_about_a_stream, Management(management.url), vhost.name)

    ours, theirs = asyncio.run(steps()), ask_about_a_stream(vhost.management, vhost.name)
    assert differences(ours[0], theirs[0], "queues") == []
    assert [status for status, _ in theirs[1:]] == [400, 400]
    assert [_reason(text) for _, text in ours[1:]] == [_reason(text) for _, text in theirs[1:]]


def _reason(text: str) -> str:
    """What follows the address of the API."""
    return text[text.index("540") if "540" in text else text.index("queue.purge") :]


DELAYED = ("messages_delayed", "messages_by_priority", "messages_active_priorities", "messages_ready_returned")


@pytest.mark.live(versions=("4.3",))
def test_delayed_and_returned_messages_are_counted_as_4_3_counts_them(vhost: Vhost) -> None:
    delays = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 60_000, "x-delayed-retry-max": 60_000}

    def prepare(url: str) -> None:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for name, more in (("delays", delays), ("returns", {})):
                channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **more})
                for priority in (None, 7, 40):
                    channel.basic_publish("", name, b"m", pika.BasicProperties(priority=priority))
                method, _, _ = channel.basic_get(name)
                channel.basic_nack(method.delivery_tag)
                channel.queue_declare(name, passive=True)

    def figures(management: Management, vhost: str) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for name in ("delays", "returns"):
            shown = management.get("queues", vhost, name)
            seen[name] = {key: shown.get(key) for key in DELAYED}
            seen[name]["moments"] = [key for key in ("next_delayed_at", "last_delayed_at") if key in shown]
        return seen

    async def steps() -> dict[str, Any]:
        async with EmbeddedBroker("4.3") as broker, ManagementServer(broker) as management:
            await asyncio.to_thread(prepare, broker.url)
            return await asyncio.to_thread(figures, Management(management.url), "/")

    ours = asyncio.run(steps())
    assert (ours["delays"]["messages_delayed"], ours["returns"]["messages_ready_returned"]) == (1, 1)
    prepare(vhost.amqp_url)
    patience = time.monotonic() + STATISTICS_S_MAX
    while (theirs := figures(vhost.management, vhost.name)) != ours and time.monotonic() < patience:
        time.sleep(0.5)
    assert ours == theirs


def refusals(management: Management, vhost: str) -> list[tuple[int, str]]:
    """The answers to requests that are no good."""
    management.put("vhosts", vhost)
    management.put("queues", vhost, "q", body={"durable": True, "arguments": {"x-message-ttl": 5}})
    between = ("bindings", vhost, "e", "amq.topic", "q")
    policy = {"pattern": "x", "definition": {"max-length": 1}}
    asked: list[tuple[str, tuple[str, ...], Any]] = [
        ("put", ("queues", vhost, "q"), {"durable": True}),
        ("put", ("queues", vhost, "q"), {"durable": False, "arguments": {"x-message-ttl": 5}}),
        ("put", ("queues", vhost, "bad"), {"arguments": {"x-message-ttl": "x"}}),
        ("put", ("queues", vhost, "bad"), {"durable": "yes"}),
        ("put", ("queues", vhost, "amq.bad"), {}),
        ("put", ("queues", "no such vhost", "q"), {}),
        ("put", ("exchanges", vhost, "x"), {"type": "nope"}),
        ("put", ("exchanges", vhost, "amq.topic"), {"type": "direct", "durable": True}),
        ("post", (*between, "nope"), {"routing_key": "k"}),
        ("post", ("bindings", vhost, "e", "nope", "q", "q"), {"routing_key": "k"}),
        ("put", ("policies", vhost, "p"), {**policy, "definition": {"nope": 1}}),
        ("put", ("policies", vhost, "p"), {**policy, "definition": {"max-length": "x"}}),
        ("put", ("policies", vhost, "p"), {**policy, "definition": {}}),
        ("put", ("policies", vhost, "p"), {**policy, "apply-to": "nope"}),
        ("put", ("policies", vhost, "p"), {**policy, "definition": {"delivery-limit": "x"}}),
        ("put", ("operator-policies", vhost, "p"), {**policy, "definition": {"dead-letter-exchange": "x"}}),
        ("post", ("queues", vhost, "nope", "get"), {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}),
        ("post", ("queues", vhost, "q", "get"), {"count": 1, "encoding": "auto"}),
        ("get", ("queues", vhost, "nope"), None),
        ("get", ("policies", vhost, "nope"), None),
        ("delete", ("exchanges", vhost, "amq.topic"), None),
        ("delete", ("connections", "nope"), None),
    ]
    answers = []
    for method, path, body in asked:
        try:
            call = getattr(management, method)
            call(*path) if body is None else call(*path, body=body)
            answers.append((200, ""))
        except ManagementRefused as refused:
            # 3.10 and 4.0 escape texts for the web page that may show them.
            answers.append((refused.status, refused.detail.replace("&lt;", "<").replace("&gt;", ">")))
    return answers


@pytest.mark.live
def test_what_is_no_good_is_refused_in_the_same_words(vhost: Vhost) -> None:
    async def steps() -> list[tuple[int, str]]:
        async with EmbeddedBroker(vhost.broker.profile) as broker, ManagementServer(broker) as management:
            return await asyncio.to_thread(refusals, Management(management.url), vhost.name)

    assert asyncio.run(steps()) == refusals(vhost.management, vhost.name)
