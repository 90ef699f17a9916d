"""`python -m bench.dead_letters`: collecting dead letters into a store and redriving them, beside the broker's shovel.

    collect   from a quorum queue of parked messages into an empty store, until both queue and open batches are gone
    redrive   one operation of all of them, back to the failed queue; from its creation to its end
    shovel    the same messages from the one queue to the other, by the broker itself

Messages have what the runtime parks with: headers with error, stack and history, an id, 300 bytes of JSON. Each store
is worked on by a process of its own (`dead_letter_work`). After each part everything is counted, on the broker and in
the store; what is not where it belongs is an error and no number. Raw numbers: results/dead_letters.json.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rig.postgres import Postgres, find_programs
from rig.process_group import ProcessGroup

from bench.amqp import shovel
from bench.amqp.broker import Broker, Miscount, Queues, start_broker
from redrive.client import Client, Confirmed, Outgoing
from redrive.core import Attempt, Failure, Parked, ParkReason, PlainMessage, Report, parking_headers
from redrive.wire import Properties

KEPT = Path(__file__).parent / "results" / "dead_letters.json"
STORES = ("sqlite", "postgresql")
BARS = {"sqlite": 5_000, "postgresql": 3_000}
CHILD_S_MAX = 1_800.0
_STACK = """Traceback (most recent call last):
  File "/srv/shop/handlers.py", line 88, in on_order
    await charge(order)
  File "/srv/shop/payments.py", line 41, in charge
    raise GatewayTimeout(f"no answer for order {order.id} in 5 s")
shop.errors.GatewayTimeout: no answer for order {number} in 5 s
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if everything could be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.dead_letters", description="Collecting and redriving.")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--version", default="4.3", help="of RabbitMQ")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, one round: does it work?")
    parser.add_argument("--profile", action="store_true", help="show where the time goes; the numbers are not kept")
    chosen = parser.parse_args(arguments)
    rounds, messages = (1, chosen.messages // 10) if chosen.quick else (chosen.rounds, chosen.messages)
    wanted = [one for one in chosen.stores.split(",") if one in STORES]
    with ExitStack() as stack:
        server = _postgres(stack) if "postgresql" in wanted else None
        if server is None and "postgresql" in wanted:
            wanted.remove("postgresql")
            _say("!!! PostgreSQL is not here and is left out: run `python -m rig build`")
        broker = stack.enter_context(start_broker(chosen.version))
        bench = Bench(broker, server, messages, is_profiled=chosen.profile)
        measured = [one for number in range(rounds) for one in bench.round(number + 1, wanted)]
        versions = broker.versions()
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "messages": messages,
        "rounds": rounds,
        "versions": versions,
        "rows": rows_of(measured),
        "measurements": measured,
    }
    print(render(result))
    if not chosen.quick and not chosen.profile:
        KEPT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        KEPT.with_suffix(".md").write_text(render(result), encoding="utf-8")
    return 1 if any("error" in one for one in measured) else 0


class Bench:
    """The broker, the server, and what is done on them."""

    def __init__(self, broker: Broker, server: Postgres | None, messages: int, *, is_profiled: bool) -> None:
        self._broker = broker
        self._server = server
        self._messages = messages
        self._is_profiled = is_profiled

    def round(self, number: int, stores: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The shovel and every store once, in turned order."""
        cases = ["shovel", *stores]
        for case in cases[number % len(cases) :] + cases[: number % len(cases)]:
            with self._broker.queues_for("W4") as queues:
                try:
                    asyncio.run(fill(self._broker.url, queues, self._messages))
                    self._broker.expect({queues.source: self._messages})
                    done = self._shovel(queues) if case == "shovel" else self._store(case, queues)
                    self._broker.expect({queues.source: 0, queues.target: self._messages})
                except (Miscount, shovel.ShovelStuck, Failed) as error:
                    _say(f"!!! round {number}  {case}: {error}")
                    yield {"round": number, "case": case, "error": str(error)}
                    continue
            for part in done:
                _say(f"round {number}  {case:<11}{part['part']:<9}{part['messages'] / part['seconds']:>8,.0f} msg/s")
                yield {"round": number, "case": case, **part}

    def _shovel(self, queues: Queues) -> list[dict[str, Any]]:
        moved, seconds = shovel.move(self._broker, queues, self._messages)
        return [{"part": "move", "messages": moved, "seconds": seconds}]

    def _store(self, kind: str, queues: Queues) -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix="redrive-bench-") as folder:
            if kind == "sqlite":
                url = f"sqlite:///{folder}/letters.db"
            else:
                assert self._server is not None
                url = self._server.url(self._server.create_database("bench"))
            return self._work(url, queues)

    def _work(self, url: str, queues: Queues) -> list[dict[str, Any]]:
        argv = [sys.executable, "-m", "bench.dead_letter_work", self._broker.url, url, queues.source, queues.target]
        argv += [str(self._messages), "--server", str(0 if self._server is None else self._server.pid)]
        if self._is_profiled:
            argv.append("--profile")
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=CHILD_S_MAX)
        if done.returncode != 0:
            raise Failed(f"its process ended with {done.returncode}")
        parts: list[dict[str, Any]] = json.loads(done.stdout)
        return parts


class Failed(Exception):
    """A case that has no result."""


async def fill(url: str, queues: Queues, messages: int) -> None:
    """Parked messages into the dead-letter queue, each confirmed."""
    now_ms = _now_ms()
    async with Client(url) as client:
        publisher = await client.publisher(window=1_000)
        for start in range(0, messages, 1_000):
            batch = [parked(number, queues, now_ms) for number in range(start, min(start + 1_000, messages))]
            outcomes = await publisher.publish_many(batch)
            if any(outcome != Confirmed() for outcome in outcomes):
                raise Failed("the queue could not be filled")


def parked(number: int, queues: Queues, now_ms: int) -> Outgoing:
    """A message as the runtime parks it after four runs."""
    rng = random.Random(number)
    body = {
        "order": {"id": number, "total": rng.randrange(100, 100_000) / 100, "currency": "EUR"},
        "customer": {"id": f"c{rng.randrange(5_000)}", "vip": rng.random() < 0.1},
        "lines": [{"sku": f"sku-{rng.randrange(900)}", "quantity": rng.randrange(1, 9)} for _ in range(3)],
        "note": "leave it at the door please",
        "trace": f"{rng.getrandbits(64):016x}",
    }
    failure = Failure(
        type="shop.errors.GatewayTimeout",
        message=f"no answer for order {number} in 5 s",
        stack=_STACK.replace("{number}", str(number)),
        status=503,
    )
    attempts = [
        Attempt(number=one, at_ms=now_ms - (4 - one) * 1_000 + number % 1_000, error=failure.text) for one in range(4)
    ]
    letter = PlainMessage(queue=queues.target, exchange="orders", routing_key="order.created")
    report = Report(retries=3, now_ms=now_ms + number % 1_000, failure=failure, history=tuple(attempts))
    encoded = json.dumps(body).encode()
    properties = Properties.of(
        content_type="application/json",
        delivery_mode=2,
        message_id=f"order-{number:08d}",
        correlation_id=f"cart-{number // 3}",
        type="OrderCreated",
        app_id="shop",
        headers={
            "tenant": f"t{rng.randrange(500)}",
            **parking_headers(Parked(reason=ParkReason.ATTEMPTS), letter, report),
        },
    )
    return Outgoing("", queues.source, encoded, properties)


def rows_of(measured: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each part of each case: medians of its rounds."""
    by_part: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in measured:
        if "error" not in one:
            by_part.setdefault((one["case"], one["part"]), []).append(one)
    return [_row(case, part, ones) for (case, part), ones in sorted(by_part.items(), key=_order)]


def _order(item: tuple[tuple[str, str], object]) -> tuple[int, str]:
    (case, part), _ = item
    return ("shovel", *STORES).index(case), part


def _row(case: str, part: str, ones: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rates = [one["messages"] / one["seconds"] for one in ones]

    def median(value: Callable[[dict[str, Any]], float | None]) -> float | None:
        values = [found for one in ones if (found := value(one)) is not None]
        return statistics.median(values) if values else None

    return {
        "case": case,
        "part": part,
        "rate": statistics.median(rates),
        "rate_min": min(rates),
        "rate_max": max(rates),
        "bar": BARS.get(case),
        "cpu_s_per_10k": median(lambda one: one["cpu_s"] / one["messages"] * 10_000 if "cpu_s" in one else None),
        "server_cpu_s_per_10k": median(
            lambda one: one["server_cpu_s"] / one["messages"] * 10_000 if one.get("server_cpu_s") is not None else None
        ),
        "resident_mb_at_tenth": median(lambda one: _mb(one.get("resident_kb_at_tenth"))),
        "resident_mb": median(lambda one: _mb(one.get("resident_kb"))),
    }


def render(result: dict[str, Any]) -> str:
    """Markdown, for a terminal and for the documentation."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [f"{result['date']}, {result['messages']:,} messages, {result['rounds']} rounds. {versions}.", ""]
    lines.append("| | | msg/s | spread | bar | CPU s/10k | the server's | MB at a tenth | MB at the end |")
    lines.append("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for row in result["rows"]:
        spread = f"{row['rate_min']:,.0f}–{row['rate_max']:,.0f}"
        bar = "–" if row["bar"] is None else f"{row['bar']:,}"
        numbers = [row["cpu_s_per_10k"], row["server_cpu_s_per_10k"], row["resident_mb_at_tenth"], row["resident_mb"]]
        texts = ["–" if one is None else f"{one:.{digits}f}" for one, digits in zip(numbers, (2, 2, 0, 0), strict=True)]
        cells = [row["case"], row["part"], f"{row['rate']:,.0f}", spread, bar, *texts]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _postgres(stack: ExitStack) -> Postgres | None:
    programs = find_programs()
    if programs is None:
        return None
    server = Postgres(stack.enter_context(ProcessGroup()), programs, fsync=True)
    server.start()
    return server


def _mb(kilobytes: int | None) -> float | None:
    return None if kilobytes is None else kilobytes / 1024


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
