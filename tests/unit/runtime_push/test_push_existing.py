"""`redrive push --existing`: a queue that no file declares is looked at before a message of it is taken."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from redrive import wire
from redrive.cli import cli
from redrive.client import Client, Confirmed
from redrive.embedded import EmbeddedBroker
from redrive.runtime import InvalidPush
from redrive.testing.plugin import ThreadedBroker
from redrive.topology import Arguments, Policy
from redrive.wiring import check_dead_letter_exchange, wait_for_existing
from tests.unit.client.scenario import Notes, run_scenario, wait_until

DLX = "x-dead-letter-exchange"
NOWHERE = "http://127.0.0.1:1/"


def push(*arguments: str, url: str) -> Result:
    return CliRunner().invoke(cli, ["push", *arguments, "--to", NOWHERE, "--url", url, "--log-format", "json"])


def declare(url: str, name: str, **settings: Any) -> None:
    async def run() -> None:
        async with Client(url) as client:
            await (await client.channel()).declare_queue(name, **settings)
            properties = wire.Properties.of(message_id="m-1", delivery_mode=2)
            assert await (await client.publisher()).publish("", name, b"{}", properties) == Confirmed()

    asyncio.run(run())


@pytest.mark.rabbitmq(time="real")
def test_rejecting_from_a_queue_without_a_dead_letter_exchange_is_refused(broker: ThreadedBroker) -> None:
    declare(broker.url, "plain")
    result = push("plain", "--existing", "reject", url=broker.url)
    assert isinstance(result.exception, InvalidPush)
    assert str(result.exception) == (
        "queue plain has no dead-letter exchange among its arguments, and without one a rejected message is gone; if a"
        " policy gives it one, which AMQP does not show, add --has-dead-letter-exchange, else use --existing again"
    )
    assert broker.depths() == {"plain": 1}
    assert [place.queue for place in broker.whereabouts("m-1")] == ["plain"]


def test_a_policy_is_not_seen_and_has_to_be_said() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            await (await client.channel()).declare_queue("plain")
            definition = Arguments({"dead-letter-exchange": "amq.fanout"})
            broker.set_policy(Policy(name="dead", pattern="plain", definition=definition))
            with pytest.raises(InvalidPush, match="add --has-dead-letter-exchange"):
                await check_dead_letter_exchange(client, "plain")

    run_scenario(scenario())


def test_a_missing_queue_is_waited_for_and_no_file_is_named_to_declare_it_with() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            notes = Notes()
            waiting = asyncio.create_task(wait_for_existing(client, "plain", waits=True, observer=notes))
            await wait_until(lambda: notes.count("runtime.waiting_for_topology"))
            assert notes.last("runtime.waiting_for_topology") == {"queue": "plain", "missing": ["queue plain"]}
            assert not waiting.done()
            await (await client.channel()).declare_queue("plain")
            await waiting

    run_scenario(scenario())


@pytest.mark.rabbitmq(time="real")
def test_a_dead_letter_exchange_that_does_not_exist_is_none(broker: ThreadedBroker) -> None:
    declare(broker.url, "orders", arguments={DLX: "gone"})
    result = push("orders", "--existing", "reject", url=broker.url)
    assert str(result.exception) == (
        "queue orders dead-letters to exchange gone, which does not exist, so a rejected message is gone; declare that"
        " exchange and bind a queue to it"
    )
    assert broker.depths() == {"orders": 1}


@pytest.mark.rabbitmq(time="real")
@pytest.mark.parametrize("existing", ["again", "reject"])
def test_a_missing_queue_is_refused_with_no_wait_and_no_word_of_a_file(broker: ThreadedBroker, existing: str) -> None:
    result = push("missing", "--existing", existing, "--no-wait", url=broker.url)
    assert isinstance(result.exception, InvalidPush)
    assert str(result.exception).startswith("there is no queue missing on amqp://127.0.0.1:")
    assert str(result.exception).endswith("; declare it, or name another")
    assert broker.depths() == {}


@pytest.mark.rabbitmq(time="real")
def test_a_declared_queue_that_is_missing_is_refused_with_no_wait(broker: ThreadedBroker, tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("queues: {orders: {retry: [30s]}}")
    result = push("orders", "--file", str(file), "--no-wait", url=broker.url)
    assert "not declared on the broker: queue orders" in str(result.exception)
    # The broker it is to be declared on was named by hand.
    shown = broker.url.replace("guest:guest@", "").removesuffix("%2F")
    assert str(result.exception).endswith(f"declare them with: redrive apply {file} --url {shown}")


def test_a_file_and_existing_contradict_each_other() -> None:
    result = push("orders", "--existing", "again", "--file", "redrive.yaml", url="amqp://127.0.0.1:1/")
    assert result.exit_code == 2
    assert "--file declares QUEUE and --existing says that no file does; give one of them." in result.output


@pytest.mark.parametrize("existing", [[], ["--existing", "again"]])
def test_a_dead_letter_exchange_matters_only_to_what_is_rejected(existing: list[str]) -> None:
    result = push("orders", *existing, "--has-dead-letter-exchange", url="amqp://127.0.0.1:1/")
    assert result.exit_code == 2
    assert "--has-dead-letter-exchange is for --existing reject" in result.output
