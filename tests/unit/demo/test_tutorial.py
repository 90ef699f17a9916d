"""The tutorial's first steps, walked: its declaration, its console output, its app."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from redrive import App, wire
from redrive.client import Client, Confirmed
from redrive.embedded import EmbeddedBroker
from redrive.runtime import AppRunOptions
from redrive.simulation import as_text, simulate
from redrive.topology import Compiled, compile_declaration, read_declaration, render_tree
from redrive.wiring import declare_on, running

PAGE = (Path(__file__).parents[3] / "docs" / "tutorial" / "first-steps.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    (declaration,) = blocks("yaml")
    return compile_declaration(read_declaration(declaration, file="redrive.yaml"))


def test_the_console_shows_what_the_commands_say(compiled: Compiled) -> None:
    tree, simulated = blocks("console")
    assert tree.partition("\n")[2] == render_tree(compiled.topology, compiled.retry_routes, colour=False)
    life, _ = simulate(compiled.topology, queue="orders", compiled=compiled, fail=2)
    assert simulated.partition("\n")[2] == as_text(life).partition("It carries:")[0]


def test_the_app_does_what_the_text_says(
    compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tea is on its way on the third run, nonsense is parked at once, what is no order is parked without a run."""
    (tmp_path / "redrive.yaml").write_text(blocks("yaml")[0])
    monkeypatch.chdir(tmp_path)
    shop: dict[str, Any] = {"__name__": "shop"}
    exec(compile(blocks("python")[0], "shop.py", "exec", dont_inherit=True), shop)
    app = shop["app"]
    assert isinstance(app, App)
    decided: list[tuple[object, object, object]] = []
    done = asyncio.Event()

    class Notes:
        def note(self, event: str, /, **fields: object) -> None:
            if event == "runtime.decided":
                decided.append((fields["message_id"], fields["attempt"], fields["decision"]))
                if sum(1 for one in decided if one[2] in ("ack", "park")) == 3:
                    done.set()

    async def walk() -> list[str]:
        async with EmbeddedBroker(time="automatic") as broker:
            await declare_on(broker, compiled.topology)
            options = AppRunOptions(now_ms=lambda: round(broker.now_s * 1000))
            async with running(app, url=broker.url, observer=Notes(), options=options), Client(broker.url) as client:
                publisher = await client.publisher()
                for name, body in (
                    ("tea", b'{"number": 1, "item": "tea"}'),
                    ("nonsense", b'{"number": 2, "item": "nonsense"}'),
                    ("broken", b'{"number": "two"}'),
                ):
                    properties = wire.Properties.of(message_id=name, delivery_mode=2)
                    assert await publisher.publish("domain.events", "orders.placed", body, properties) == Confirmed()
                await asyncio.wait_for(done.wait(), 30)
            return [place.queue for name in ("tea", "nonsense", "broken") for place in broker.whereabouts(name)]

    assert asyncio.run(walk()) == ["orders.parked", "orders.parked"]
    assert sorted(decided, key=str) == [
        ("broken", None, "park"),
        ("nonsense", 1, "park"),
        ("tea", 1, "retry"),
        ("tea", 2, "retry"),
        ("tea", 3, "ack"),
    ]
    assert capsys.readouterr().out == "order 1: tea is on its way\n"
