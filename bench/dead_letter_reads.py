"""Reading a store with many dead letters: pages, filters, full text, statistics, each as p50 and p95 in milliseconds.

    python -m bench.dead_letter_reads [--letters 1000000] [--database sqlite:////tmp/letters.db]

Fills the store as the collector does unless it holds that many letters already, so that a second run only measures.
Without --database it makes a SQLite file and, where PostgreSQL is here, a cluster of the rig, removes them, and keeps
the numbers in results/dead_letter_reads.json.
`--explain` prints what SQL each query runs, and the database's plan of it.
"""

import argparse
import asyncio
import datetime
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.rig.postgres import Postgres, find_programs
from tests.rig.run import Run

from redrive.records import (
    Arrival,
    Between,
    BodyPath,
    Content,
    ErrorLike,
    Explanation,
    Filter,
    HeaderIs,
    Named,
    Selection,
    Term,
    Words,
    make_id,
    search_text,
)
from redrive.stores import Store, open_store
from redrive.stores.cursors import write_cursor
from redrive.wire import Properties

KEPT = Path(__file__).parent / "results" / "dead_letter_reads.json"
BEGIN_MS = 1_700_000_000_000
STEP_MS = 20
BATCH = 2_000
RUNS = 40
PAGE = 50
QUEUES = [f"orders.{region}.{number}" for region in ("eu", "us", "asia") for number in range(10)]
ERRORS = ["TimeoutError", "ConnectionRefusedError", "ValueError", "KeyError", "PaymentDeclined", "StockMissing"]
WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa".split()


def arrivals(count: int, seed: int = 7) -> Iterator[Arrival]:
    """Letters of 30 queues, six errors, a thousand kinds of group, bodies of about 300 bytes."""
    luck = random.Random(seed)
    for number in range(count):
        # A few queues have most of the letters, as it is.
        queue = QUEUES[min(int(luck.expovariate(0.2)), len(QUEUES) - 1)]
        error = luck.choice(ERRORS)
        kind = luck.randrange(6)
        died_at_ms = BEGIN_MS + number * STEP_MS
        message_id = f"m-{number:08d}"
        body = {
            "order": {"id": number, "total": luck.randrange(100, 100_000) / 100},
            "customer": {"id": f"c{luck.randrange(count // 10 + 1)}", "vip": luck.random() < 0.1},
            "note": " ".join(luck.choices(WORDS, k=20)),
            "trace": f"{luck.getrandbits(64):016x}",
        }
        properties = Properties.of(
            message_id=message_id, headers={"x-tenant": f"t{luck.randrange(500)}", "x-original-queue": queue}
        )
        told = Explanation(
            queue=queue,
            exchange="orders",
            routing_key=f"{queue}.created.{luck.randrange(20)}",
            reason="rejected",
            told_by="redrive",
            error_type=error,
            error_message=f"{error} of kind {kind} while handling",
            status_code=503 if error == "TimeoutError" else None,
            stack=None,
            attempts=4,
            history=(),
            message_id=message_id,
            correlation_id=f"corr-{number // 3}",
            type=f"Order{luck.choice(('Created', 'Paid', 'Shipped', 'Returned'))}",
            service=f"service-{luck.randrange(12)}",
            died_at_ms=died_at_ms,
            group_id=f"{queue}/{error}/{kind}",
            group_title=f"{error}: of kind {kind} while handling",
        )
        encoded = json.dumps(body).encode()
        yield Arrival(
            id=make_id(died_at_ms, luck.getrandbits(35)),
            vhost="/",
            dlq=f"{queue}.parked",
            dlq_exchange="",
            dlq_routing_key=f"{queue}.parked",
            content=Content(properties=properties.raw, body=encoded),
            fingerprint=number.to_bytes(8, "big"),
            explanation=told,
            search_text=search_text(told, headers=properties.headers, body=encoded),
            collected_at_ms=died_at_ms,
        )


async def fill(store: Store, count: int) -> None:
    """Adds what is missing; the last hundredth of the letters is resolved or in other states."""
    there = await store.letters.count(Filter(), now_ms=0)
    if there >= count:
        return
    began_s = time.perf_counter()
    lease = await store.leases.acquire("collect:bench", "bench", ttl_ms=10**12)
    if lease is None:
        sys.exit("another run fills this store; wait for it, or name another database")
    hand: list[Arrival] = []
    done = 0
    for arrival in arrivals(count):
        hand.append(arrival)
        if len(hand) == BATCH:
            batch_id = make_id(BEGIN_MS, done)
            await store.collecting.store(hand, lease=lease, batch_id=batch_id, now_ms=arrival.collected_at_ms)
            await store.collecting.own(batch_id)
            done += len(hand)
            hand.clear()
            if done % 100_000 == 0:
                print(f"  {done} stored, {done / (time.perf_counter() - began_s):.0f}/s", file=sys.stderr, flush=True)
    if hand:
        await store.collecting.store(hand, lease=lease, batch_id=make_id(BEGIN_MS, count), now_ms=BEGIN_MS)
    await store.leases.release(lease)
    chosen = Filter((Between(field="dead", from_ms=BEGIN_MS + count * STEP_MS // 2, until_ms=None),))
    now_ms = BEGIN_MS + count * STEP_MS
    selection = Selection(filter=chosen, limit=count // 100)
    await store.letters.resolve(selection, who="bench", why="measured", now_ms=now_ms)


def questions(store: Store, count: int) -> dict[str, Callable[[], Awaitable[Any]]]:
    """What is asked, by the name it has in the table."""
    now_ms = BEGIN_MS + count * STEP_MS

    def page(*terms: Term, **more: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: store.letters.page(Filter(terms), limit=PAGE, now_ms=now_ms, **more)

    def named(field: Any, *values: str) -> Named:
        return Named(field=field, values=values)

    busy, quiet = QUEUES[0], QUEUES[-2]
    middle = write_cursor("newest", (BEGIN_MS + count * STEP_MS // 2, count // 2))
    deep = write_cursor("newest", (BEGIN_MS + count * STEP_MS // 100, count // 100))
    middle_word = write_cursor("newest", (count // 2,))
    tenant = HeaderIs(name="x-tenant", value="t77")
    return {
        "first page": page(),
        "page in the middle": page(cursor=middle),
        "page at the end": page(cursor=deep),
        "first page, oldest first": page(newest_first=False),
        "status, most letters": page(named("status", "pending")),
        "status, few letters": page(named("status", "resolved")),
        "status, none": page(named("status", "in_doubt")),
        "queue, busy": page(named("queue", busy)),
        "queue, quiet": page(named("queue", quiet)),
        "queue, busy, in the middle": page(named("queue", busy), cursor=middle),
        "queue by pattern": page(named("queue", "orders.eu.*")),
        "DLQ": page(named("dlq", f"{busy}.parked")),
        "topic": page(named("topic", f"{busy}.created.3")),
        "service": page(named("service", "service-3")),
        "type": page(named("type", "OrderPaid")),
        "group": page(named("group", f"{busy}/KeyError/2")),
        "message id": page(named("message_id", f"m-{count // 3:08d}")),
        "correlation id": page(named("correlation_id", f"corr-{count // 7}")),
        "error type": page(named("error_type", "KeyError")),
        "error text": page(ErrorLike(text="declined of kind 3")),
        "error text, in no letter": page(ErrorLike(text="zebra")),
        "status and queue": page(named("status", "pending"), named("queue", busy)),
        "status and queue, few": page(named("status", "resolved"), named("queue", busy)),
        "queue and error": page(named("queue", busy), ErrorLike(text="timeout")),
        "dead since": page(Between(field="dead", from_ms=now_ms - count * STEP_MS // 3, until_ms=None)),
        "full text, one letter": page(Words(words=(f"m-{count // 2:08d}",))),
        "full text, rare (about 10)": page(Words(words=(f"c{count // 20}",))),
        "full text, 1 in 500": page(Words(words=("t77",))),
        "full text, common word": page(Words(words=("timeouterror",))),
        "full text, in all": page(Words(words=("orders",))),
        "full text, common, in the middle": page(Words(words=("timeouterror",)), cursor=middle_word),
        "full text, two words": page(Words(words=("timeouterror", "alpha"))),
        "full text, rare and common": page(Words(words=("t77", "keyerror"))),
        "full text, phrase": page(Words(words=("alpha", "bravo"), is_phrase=True)),
        "full text, beginning": page(Words(words=("timeout",), is_prefix=True)),
        "full text and queue": page(Words(words=("keyerror",)), named("queue", quiet)),
        "statistics": lambda: store.stats.totals(now_ms=now_ms),
        "statistics of a status": lambda: store.stats.totals(Filter((named("status", "resolved"),)), now_ms=now_ms),
        "statistics of a queue": lambda: store.stats.totals(Filter((named("queue", busy),)), now_ms=now_ms),
        "series of a day": lambda: store.stats.series(
            from_ms=now_ms - 86_400_000, until_ms=now_ms, bucket_ms=3_600_000
        ),
        "groups": lambda: store.groups.page(limit=PAGE),
        "body path, rare": page(BodyPath(path=("customer", "id"), value=f"c{count // 20}")),
        "body path, common": page(BodyPath(path=("customer", "vip"), value="true")),
        "header": page(tenant),
        "header and queue": page(tenant, named("queue", quiet)),
        "body path, in no letter": page(BodyPath(path=("order", "*"), value="*zebra*", negated=False)),
        "body path, not so in 20 ways": page(*(BodyPath(path=(f"n{n}",), value="*") for n in range(20))),
        "body path, in no letter's place": page(BodyPath(path=("order", "id"), value="alpha")),
    }


async def measure(store: Store, count: int, runs: int, only: str) -> dict[str, dict[str, float]]:
    """p50 and p95 of every question, after one that warms up."""
    results: dict[str, dict[str, float]] = {}
    for name, ask in questions(store, count).items():
        if only not in name:
            continue
        answer = await ask()
        times = []
        for _ in range(runs):
            began_s = time.perf_counter()
            await ask()
            times.append((time.perf_counter() - began_s) * 1000)
        found = len(answer.letters) if hasattr(answer, "letters") else -1
        p95 = statistics.quantiles(times, n=20)[-1]
        results[name] = {"p50_ms": round(statistics.median(times), 2), "p95_ms": round(p95, 2), "found": found}
        partial = " partial" if getattr(answer, "is_partial", False) else ""
        print(f"  {name:<34} {statistics.median(times):>8.2f} {p95:>8.2f}  {found:>3}{partial}", flush=True)
    return results


async def explain(store: Store, count: int, only: str) -> None:
    """Every statement that the questions run, with its plan."""
    database: Any = store._database
    read = database.read

    class Telling:
        def __init__(self, tx: Any) -> None:
            self._tx = tx

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tx, name)

        async def rows(self, text: str, *arguments: Any) -> Any:
            began_s = time.perf_counter()
            rows = await self._tx.rows(text, *arguments)
            print(f"  -- {(time.perf_counter() - began_s) * 1000:.1f} ms, {len(rows)} rows\n  {text[:2000]}")
            word = "EXPLAIN QUERY PLAN" if store.kind == "sqlite" else "EXPLAIN (ANALYZE, BUFFERS)"
            for row in await self._tx.rows(f"{word} {text}", *arguments):
                print("     ", row[-1])
            return rows

    class Reading:
        async def __aenter__(self) -> Telling:
            self._context = read()
            return Telling(await self._context.__aenter__())

        async def __aexit__(self, *error: Any) -> None:
            await self._context.__aexit__(*error)

    database.read = Reading
    for name, ask in questions(store, count).items():
        if only in name:
            print(name)
            await ask()


async def run(url: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Fills and measures one store."""
    async with await open_store(url) as store:
        print(f"{store.kind}, {chosen.letters} dead letters", flush=True)
        began_s = time.perf_counter()
        await fill(store, chosen.letters)
        filled_s = time.perf_counter() - began_s
        if store.kind == "postgresql":
            # Autovacuum comes to it after a while; a benchmark can't wait for that.
            await vacuum(url)
        if chosen.explain:
            await explain(store, chosen.letters, chosen.only)
            return {}
        results = await measure(store, chosen.letters, chosen.runs, chosen.only)
    return {"letters": chosen.letters, "filled_s": round(filled_s, 1), "questions": results}


async def vacuum(url: str) -> None:
    """What autovacuum would do."""
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute("VACUUM ANALYZE", timeout=600)
    await connection.close()


def render(results: dict[str, Any]) -> str:
    """Markdown, for the documentation."""
    kinds = [kind for kind in ("sqlite", "postgresql") if kind in results]
    letters = results[kinds[0]]["letters"]
    lines = [f"{results['date']}, {letters:,} dead letters; p50 and p95 in milliseconds.", ""]
    lines.append("| | " + " | ".join(f"{kind} p50 | p95" for kind in kinds) + " |")
    lines.append("|---|" + "--:|--:|" * len(kinds))
    for name in results[kinds[0]]["questions"]:
        cells = [name]
        for kind in kinds:
            one = results[kind]["questions"][name]
            cells += [f"{one['p50_ms']:.1f}", f"{one['p95_ms']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.dead_letter_reads", description=__doc__)
    parser.add_argument("--database", help="a database URL; both kinds of its own without")
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", default="", help="questions whose name holds this")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--keep", type=Path, help="a file for the results, as JSON")
    chosen = parser.parse_args()
    is_whole = not (chosen.database or chosen.explain or chosen.only)
    keep = KEPT if chosen.keep is None and is_whole else chosen.keep
    results: dict[str, Any] = {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    with ExitStack() as stack:
        urls = [chosen.database] if chosen.database else []
        if not urls:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-bench-"))
            urls.append(f"sqlite:///{folder}/letters.db")
            programs = find_programs()
            if programs is not None:
                server = Postgres(stack.enter_context(Run()), programs, fsync=True)
                server.start()
                urls.append(server.url(server.create_database("bench")))
        for url in urls:
            results[url.partition(":")[0]] = asyncio.run(run(url, chosen))
    if keep is not None:
        keep.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if keep == KEPT:
        KEPT.with_suffix(".md").write_text(render(results), encoding="utf-8")


if __name__ == "__main__":
    main()
