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
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rig.postgres import Postgres, find_programs
from rig.process_group import ProcessGroup

from redrive.records import (
    Arrival,
    BodyTerm,
    ErrorTerm,
    Explanation,
    Filter,
    FlagTerm,
    HeaderTerm,
    MessageContent,
    NameTerm,
    NumberTerm,
    Selection,
    Term,
    TimeTerm,
    WordsTerm,
    make_id,
    search_text,
)
from redrive.stores import FilterTooExpensive, Store, open_store
from redrive.stores.cursors import write_cursor
from redrive.wire import Properties

KEPT = Path(__file__).parent / "results" / "dead_letter_reads.json"
BEGIN_MS = 1_700_000_000_000
STEP_MS = 20
BATCH = 2_000
RUNS = 40
BAR_MS = 150.0
HOPELESS_MS = 3_000.0
"""What takes so long is not asked forty times."""
PAGE = 50
SLOWEST = 10
QUEUES = [f"orders.{region}.{number}" for region in ("eu", "us", "asia") for number in range(10)]
ERRORS = ["TimeoutError", "ConnectionRefusedError", "ValueError", "KeyError", "PaymentDeclined", "StockMissing"]
OLD_ERROR = "LedgerLocked"
RARE = 100_000
"""One letter of so many has an error's text and a header that no other has."""
WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa".split()


def arrivals(count: int, seed: int = 7) -> Iterator[Arrival]:
    """Letters of 30 queues, six errors, a thousand kinds of group, bodies of about 300 bytes."""
    luck = random.Random(seed)
    for number in range(count):
        # A few queues have most of the letters, as it is.
        queue = QUEUES[min(int(luck.expovariate(0.2)), len(QUEUES) - 1)]
        # An incident of long ago in every queue, and a release that nothing new comes from.
        error = OLD_ERROR if number < count // 100 else luck.choice(ERRORS)
        kind = luck.randrange(6)
        died_at_ms = BEGIN_MS + number * STEP_MS
        message_id = f"m-{number:08d}"
        body = {
            "order": {"id": number, "total": luck.randrange(100, 100_000) / 100},
            "customer": {"id": f"c{luck.randrange(count // 10 + 1)}", "vip": luck.random() < 0.1},
            "note": " ".join(luck.choices(WORDS, k=20)),
            "trace": f"{luck.getrandbits(64):016x}",
        }
        headers = {"x-tenant": f"t{luck.randrange(500)}", "x-original-queue": queue}
        headers["x-release"] = "june" if number < count // 2 else "july"
        error_message = f"{error} of kind {kind} while handling"
        if number % RARE == RARE // 2:
            headers["x-shard"] = "Süd 9"
            error_message = f"{error}: Überlauf (shard 9), 0x7f3a beyond the end"
        properties = Properties.of(message_id=message_id, headers=headers)
        told = Explanation(
            queue=queue,
            exchange="orders",
            routing_key=f"{queue}.created.{luck.randrange(20)}",
            reason="rejected",
            told_by="redrive",
            error_type=error,
            error_message=error_message,
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
            content=MessageContent(properties=properties.raw, body=encoded),
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
            await store.batches.store(hand, lease=lease, batch_id=batch_id, now_ms=arrival.collected_at_ms)
            await store.batches.close(batch_id)
            done += len(hand)
            hand.clear()
            if done % 100_000 == 0:
                print(f"  {done} stored, {done / (time.perf_counter() - began_s):.0f}/s", file=sys.stderr, flush=True)
    if hand:
        await store.batches.store(hand, lease=lease, batch_id=make_id(BEGIN_MS, count), now_ms=BEGIN_MS)
    await store.leases.release(lease)
    chosen = Filter((TimeTerm(field="dead", from_ms=BEGIN_MS + count * STEP_MS // 2, until_ms=None),))
    now_ms = BEGIN_MS + count * STEP_MS
    selection = Selection(filter=chosen, limit=count // 100)
    await store.letters.resolve(selection, who="bench", why="measured", now_ms=now_ms)


def questions(store: Store, count: int) -> dict[str, Callable[[], Awaitable[Any]]]:
    """What is asked, by the name it has in the table."""
    now_ms = BEGIN_MS + count * STEP_MS

    def page(*terms: Term, **more: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: store.letters.page(Filter(terms), limit=PAGE, now_ms=now_ms, **more)

    def totals(*terms: Term) -> Callable[[], Awaitable[Any]]:
        return lambda: store.stats.totals(Filter(terms), now_ms=now_ms)

    def series(from_ms: int, queue: str | None = None, dlqs: Sequence[str] = ()) -> Callable[[], Awaitable[Any]]:
        return lambda: store.stats.series(from_ms=from_ms, until_ms=now_ms, bucket_ms=3_600_000, queue=queue, dlqs=dlqs)

    def named(field: Any, *values: str) -> NameTerm:
        return NameTerm(field=field, values=values)

    def words(text: str, **more: bool) -> WordsTerm:
        return WordsTerm(words=tuple(text.split()), **more)

    busy, quiet = QUEUES[0], QUEUES[-2]
    middle = write_cursor("newest", (BEGIN_MS + count * STEP_MS // 2, count // 2))
    deep = write_cursor("newest", (BEGIN_MS + count * STEP_MS // 100, count // 100))
    middle_word = write_cursor("newest", (count // 2,))
    tenant = HeaderTerm(name="x-tenant", value="t77")
    rare, none, old = ErrorTerm(text="ÜBERLAUF (shard 9)"), ErrorTerm(text="zebra"), ErrorTerm(text=OLD_ERROR)
    customer = BodyTerm(path=("customer", "id"), value=f"c{count // 20}")
    no_path = BodyTerm(path=("order", "id"), value="alpha")
    no_header = HeaderTerm(name="x-tenant", value="alpha")
    third_ms = now_ms - count * STEP_MS // 3
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
        "message id by pattern, none": page(named("message_id", "*zebra*")),
        "correlation id": page(named("correlation_id", f"corr-{count // 7}")),
        "exchange, none": page(named("exchange", "zebra")),
        "attempts, none": page(NumberTerm(field="attempts", low=9, high=None)),
        "poison, none": page(FlagTerm(flag="poison")),
        "due, none": page(FlagTerm(flag="due")),
        "dead since": page(TimeTerm(field="dead", from_ms=third_ms, until_ms=None)),
        "collected before, at the end": page(TimeTerm(field="collected", from_ms=None, until_ms=BEGIN_MS + 1_000)),
        "status and queue": page(named("status", "pending"), named("queue", busy)),
        "status and queue, few": page(named("status", "resolved"), named("queue", busy)),
        "error type": page(named("error_type", "KeyError")),
        "error type, of long ago": page(named("error_type", OLD_ERROR)),
        "error type, of long ago, and status": page(named("error_type", OLD_ERROR), named("status", "pending")),
        "error type, of long ago, and queue": page(named("error_type", OLD_ERROR), named("queue", busy)),
        "error text": page(ErrorTerm(text="declined of kind 3")),
        "error text, 1 in 100,000": page(rare),
        "error text, 1 in 100,000, one character": page(ErrorTerm(text="9")),
        "error text, of long ago": page(old),
        "error text, in no letter": page(none),
        "error text, in no letter, in the middle": page(none, cursor=middle),
        "error text, in no letter, oldest first": page(none, newest_first=False),
        "error text, in no letter, one character": page(ErrorTerm(text="z")),
        "not an error text, most": page(ErrorTerm(text="zebra", negated=True)),
        "not an error text, 1 in 100,000": page(ErrorTerm(text="handling", negated=True)),
        "not an error text, none": page(ErrorTerm(text="e", negated=True)),
        "queue and error text": page(named("queue", busy), ErrorTerm(text="timeout")),
        "queue and error text, rare": page(named("queue", busy), rare),
        "queue and error text, none": page(named("queue", busy), none),
        "queues by pattern and error text, none": page(named("queue", "orders.eu.*"), none),
        "all queues by pattern and error text, none": page(named("queue", "orders.*"), none),
        "status and error text, none": page(named("status", "pending"), none),
        "status, few, and error text, none": page(named("status", "resolved"), none),
        "group and error text, none": page(named("group", f"{busy}/KeyError/2"), none),
        "service and error text, none": page(named("service", "service-3"), none),
        "dead since and error text, none": page(TimeTerm(field="dead", from_ms=third_ms, until_ms=None), none),
        "full text, one letter": page(words(f"m-{count // 2:08d}")),
        "full text, rare (about 10)": page(words(f"c{count // 20}")),
        "full text, 1 in 500": page(words("t77")),
        "full text, common word": page(words("timeouterror")),
        "full text, in all": page(words("orders")),
        "full text, in no letter": page(words("zebra")),
        "full text, older half": page(words("june")),
        "full text, newer half, oldest first": page(words("july"), newest_first=False),
        "full text, of long ago": page(words(OLD_ERROR)),
        "full text, common, in the middle": page(words("timeouterror"), cursor=middle_word),
        "full text, two words": page(words("timeouterror alpha")),
        "full text, two common words never together": page(words("timeouterror keyerror")),
        "full text, two halves": page(words("june july")),
        "full text, rare and common": page(words("t77 keyerror")),
        "full text, phrase": page(words("alpha bravo", is_phrase=True)),
        "full text, phrase of common words, none": page(words("handling of", is_phrase=True)),
        "full text, beginning": page(words("timeout", is_prefix=True)),
        "full text, beginning of many words": page(words("c", is_prefix=True)),
        "full text, beginning of all ids": page(words("0", is_prefix=True)),
        "full text, beginning of all ids, none": page(words("0", is_prefix=True), words("zebra")),
        "full text, beginning of old ids": page(words("m-000", is_prefix=True)),
        "full text and queue": page(words("keyerror"), named("queue", quiet)),
        "full text and error text, none": page(words("keyerror"), none),
        "full text, older half, and error text, none": page(words("june"), none),
        "not a word, most": page(words("zebra", negated=True)),
        "not a word, older half": page(words("july", negated=True)),
        "not a word, none": page(words("orders", negated=True)),
        "queue and not a word, none": page(named("queue", busy), words("orders", negated=True)),
        "queues by pattern and not a word, none": page(named("queue", "orders.eu.*"), words("orders", negated=True)),
        "body path, rare": page(customer),
        "body path, common": page(BodyTerm(path=("customer", "vip"), value="true")),
        "body path, in no letter": page(BodyTerm(path=("order", "*"), value="*zebra*")),
        "body path, in no letter's place": page(no_path),
        "body path, in no letter's place, and queue": page(no_path, named("queue", busy)),
        "body path, in 20 places of no letter": page(*(BodyTerm(path=(f"n{n}",), value="*") for n in range(20))),
        "not a body path, none": page(BodyTerm(path=("order", "id"), value="*", negated=True)),
        "body path and error text, none": page(BodyTerm(path=("customer", "vip"), value="true"), none),
        "header": page(tenant),
        "header, 1 in 100,000": page(HeaderTerm(name="x-shard", value="Süd 9")),
        "header, older half": page(HeaderTerm(name="x-release", value="june")),
        "header, in no letter": page(HeaderTerm(name="x-tenant", value="zebra")),
        "header, in no letter's place": page(no_header),
        "header and queue": page(tenant, named("queue", quiet)),
        "not a header, none": page(HeaderTerm(name="x-tenant", value="*", negated=True)),
        "statistics": lambda: store.stats.totals(now_ms=now_ms),
        "statistics of a status": totals(named("status", "resolved")),
        "statistics of a queue": totals(named("queue", busy)),
        "statistics of queues by pattern": totals(named("queue", "orders.*")),
        "statistics of an error type": totals(named("error_type", "KeyError")),
        "statistics of an error type of long ago": totals(named("error_type", OLD_ERROR)),
        "statistics of an error text": totals(ErrorTerm(text="timeout")),
        "statistics of an error text, 1 in 100,000": totals(rare),
        "statistics of an error text, none": totals(none),
        "statistics of queues by pattern and error text, none": totals(named("queue", "orders.*"), none),
        "statistics of a word": totals(words("timeouterror")),
        "statistics of a word, older half": totals(words("june")),
        "statistics of a phrase, none": totals(words("handling of", is_phrase=True)),
        "statistics of not a word, none": totals(words("orders", negated=True)),
        "statistics of a body path, common": totals(BodyTerm(path=("customer", "vip"), value="true")),
        "statistics of a body path, none": totals(no_path),
        "statistics of a header, none": totals(no_header),
        "series of a day": series(now_ms - 86_400_000),
        "series of 90 days": series(now_ms - 90 * 86_400_000),
        "series of a queue": series(now_ms - 86_400_000, queue=busy),
        "series of dead-letter queues": series(now_ms - 90 * 86_400_000, dlqs=("orders.eu.*",)),
        "groups": lambda: store.groups.page(limit=PAGE),
        "groups, the largest": lambda: store.groups.page(limit=PAGE, order="count"),
        "groups of queues": lambda: store.groups.page(limit=PAGE, queues=("orders.eu.*",)),
        "count": lambda: store.letters.count(Filter(), now_ms=now_ms),
        "count, at most 1,000, of a queue": lambda: store.letters.count(
            Filter((named("queue", busy),)), now_ms=now_ms, at_most=1_000
        ),
    }


def outcome_of(answer: Any) -> str:
    """Whether it is all that was asked for."""
    return "partial" if getattr(answer, "is_partial", False) else ""


async def measure(store: Store, count: int, runs: int, only: str) -> dict[str, dict[str, Any]]:
    """p50 and p95 of every question, after one that warms up."""
    results: dict[str, dict[str, Any]] = {}
    for name, ask in questions(store, count).items():
        if only not in name:
            continue
        times: list[float] = []
        for _ in range(runs + 1):
            began_s = time.perf_counter()
            try:
                answer = await ask()
                outcome = outcome_of(answer)
            except FilterTooExpensive:
                answer, outcome = None, "refused"
            times.append((time.perf_counter() - began_s) * 1000)
            if times[-1] > HOPELESS_MS and len(times) > 3:
                break
        del times[0]
        found = len(answer.letters) if hasattr(answer, "letters") else -1
        p50, p95 = statistics.median(times), statistics.quantiles(times, n=20, method="inclusive")[-1]
        results[name] = {"p50_ms": round(p50, 2), "p95_ms": round(p95, 2), "found": found, "outcome": outcome}
        late = "  !!!" if p95 > BAR_MS else ""
        print(f"  {name:<54} {p50:>8.2f} {p95:>8.2f}  {found:>3} {outcome}{late}", flush=True)
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
    return {
        "letters": chosen.letters,
        "filled_s": round(filled_s, 1),
        "load_average": load_average(),
        "questions": results,
    }


async def vacuum(url: str) -> None:
    """What autovacuum would do."""
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute("VACUUM ANALYZE", timeout=600)
    await connection.close()


def slowest(kind: str, rows: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Markdown: the questions to one store that took longest, by p95."""
    lines = [f"The ten slowest on {kind}:", "", "| | p50 | p95 | |", "|---|--:|--:|---|"]
    for name, one in sorted(rows, key=lambda row: -row[1]["p95_ms"])[:SLOWEST]:
        lines.append(f"| {name} | {one['p50_ms']:.1f} | {one['p95_ms']:.1f} | {one['outcome']} |")
    return [*lines, ""]


def load_average() -> list[float]:
    """How busy the machine is, over one, five and fifteen minutes."""
    return [round(each, 1) for each in os.getloadavg()]


def render(results: dict[str, Any]) -> str:
    """Markdown, for the documentation."""
    kinds = [kind for kind in ("sqlite", "postgresql") if kind in results]
    letters = results[kinds[0]]["letters"]
    asked = [(kind, one) for kind in kinds for one in results[kind]["questions"].values()]
    late = sum(1 for _, one in asked if one["p95_ms"] > BAR_MS)
    loads = ", ".join(f"{kind} {results[kind]['load_average'][0]:.1f}" for kind in kinds)
    lines = [
        f"{results['date']}, {letters:,} dead letters; p50 and p95 in milliseconds. The bar is {BAR_MS:.0f} ms: {late} "
        f"of {len(asked)} are over it. Load average of the machine (two processors) at the end: {loads}. *Partial*: "
        "the answer says that it is, and a page has a cursor that goes on where it ended.",
        "",
    ]
    for kind in kinds:
        lines += slowest(kind, list(results[kind]["questions"].items()))
    lines.append("| | " + " | ".join(f"{kind} p50 | p95 | " for kind in kinds) + " |")
    lines.append("|---|" + "--:|--:|---|" * len(kinds))
    for name in results[kinds[0]]["questions"]:
        cells = [name]
        for kind in kinds:
            one = results[kind]["questions"][name]
            cells += [f"{one['p50_ms']:.1f}", f"{one['p95_ms']:.1f}", one["outcome"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.dead_letter_reads", description=__doc__)
    parser.add_argument("--database", action="append", help="a database URL; repeatable; both kinds of its own without")
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", default="", help="questions whose name holds this")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--keep", action="store_true", help="write the results also of databases that were named")
    chosen = parser.parse_args()
    is_whole = not (chosen.database or chosen.explain or chosen.only)
    results: dict[str, Any] = {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    with ExitStack() as stack:
        urls = list(chosen.database or ())
        if not urls:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-bench-"))
            urls.append(f"sqlite:///{folder}/letters.db")
            programs = find_programs()
            if programs is not None:
                server = Postgres(stack.enter_context(ProcessGroup()), programs, fsync=True)
                server.start()
                urls.append(server.url(server.create_database("bench")))
        for url in urls:
            results[url.partition(":")[0]] = asyncio.run(run(url, chosen))
    if is_whole or chosen.keep:
        KEPT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        KEPT.with_suffix(".md").write_text(render(results), encoding="utf-8")


if __name__ == "__main__":
    main()
