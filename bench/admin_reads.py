"""Reading many dead letters over HTTP: every list, search and statistic of the admin API, each as p50 and p95 in
milliseconds, by a real `redrive serve` with a real broker.

    python -m bench.admin_reads [--messages 1000000] [--database sqlite:////tmp/letters.db]

Asked by an admin, by an operator whose token is for one queue, and by a viewer, who may not search payloads. Fills the
store as `bench.dead_letter_reads` does, and takes one that is filled already. Without --database it makes a SQLite file
and, where PostgreSQL is here, a cluster of the rig, removes them, and keeps the numbers in results/admin_reads.json.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import http.client
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rig.postgres import Postgres, find_programs
from rig.process_group import ProcessGroup
from rig.serve_process import serving

from bench.amqp.broker import Broker, start_broker
from bench.dead_letter_reads import BAR_MS, BEGIN_MS, OLD_ERROR, QUEUES, STEP_MS, fill, load_average, slowest, vacuum
from redrive.records import Filter, NameTerm, NewOperation, OperationKind, Role, Selection, Token, make_id, mint_token
from redrive.stores import Store, open_store
from redrive.stores.cursors import write_cursor
from redrive.wiring import new_secret

KEPT = Path(__file__).parent / "results" / "admin_reads.json"
RUNS = 40
OPERATIONS = 200
ITEMS = 10_000
BUSY, QUIET = QUEUES[0], QUEUES[-2]
CALLERS = ("admin", "one queue", "viewer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A path, and who may ask it."""

    path: str
    callers: Sequence[str] = CALLERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is in a store to be asked for."""

    tokens: dict[str, str]
    letter: str
    operation: str


def questions(count: int, prepared: Prepared) -> dict[str, Question]:
    """What is asked, by the name it has in the table."""
    middle = write_cursor("newest", (BEGIN_MS + count * STEP_MS // 2, count // 2))
    deep = write_cursor("newest", (BEGIN_MS + count * STEP_MS // 100, count // 100))
    moment = _moment(BEGIN_MS + count * STEP_MS * 2 // 3)
    payloads = CALLERS[:2]

    def found(q: str, callers: Sequence[str] = CALLERS) -> Question:
        return Question(path=f"/api/v1/messages?q={quote(q)}", callers=callers)

    letter, operation = f"/api/v1/messages/{prepared.letter}", f"/api/v1/redrives/{prepared.operation}"
    return {
        "messages": Question(path="/api/v1/messages"),
        "messages, in the middle": Question(path=f"/api/v1/messages?cursor={middle}"),
        "messages, at the end": Question(path=f"/api/v1/messages?cursor={deep}"),
        "messages, oldest first": Question(path="/api/v1/messages?order=oldest"),
        "messages, 1,000 of them": Question(path="/api/v1/messages?limit=1000"),
        "by status": found("status:pending"),
        "by status, few": found("status:resolved"),
        "by status, none": found("status:in_doubt"),
        "by queue": found(f"queue:{BUSY}"),
        "by another queue": found(f"queue:{QUIET}"),
        "by queues": found("queue:orders.eu.*"),
        "by DLQ": found(f"dlq:{BUSY}.parked"),
        "by topic": found(f"topic:{BUSY}.created.3"),
        "by service": found("service:service-3"),
        "by type": found("type:OrderPaid"),
        "by group": found(f"group:{BUSY}/KeyError/2"),
        "by message id": found(f"message_id:m-{count // 3:08d}"),
        "by correlation id": found(f"correlation_id:corr-{count // 7}"),
        "by error type": found("error_type:KeyError"),
        "by error type of long ago": found(f"error_type:{OLD_ERROR}"),
        "by error type of long ago and status": found(f"error_type:{OLD_ERROR} status:pending"),
        "by error text": found('error:"declined of kind 3"', payloads),
        "by error text, 1 in 100,000": found('error:"überlauf (shard 9)"', payloads),
        "by error text, one character": found("error:9", payloads),
        "by error text of long ago": found(f"error:{OLD_ERROR}", payloads),
        "by error text, none": found("error:zebra", payloads),
        "by error text, none, in the middle": Question(
            path=f"/api/v1/messages?q=error:zebra&cursor={middle}", callers=payloads
        ),
        "by error text, none, oldest first": Question(
            path="/api/v1/messages?q=error:zebra&order=oldest", callers=payloads
        ),
        "by error text that it has not, most": found("-error:zebra", payloads),
        "by error text that it has not, 1 in 100,000": found("-error:handling", payloads),
        "by error text that it has not, none": found("-error:e", payloads),
        "by queue and error, 1 in 100,000": found(f'queue:{BUSY} error:"shard 9"', payloads),
        "by queue and error, none": found(f"queue:{BUSY} error:zebra", payloads),
        "by queues and error, none": found("queue:orders.* error:zebra", payloads),
        "by status and error, none": found("status:pending error:zebra", payloads),
        "by service and error, none": found("service:service-3 error:zebra", payloads),
        "by exchange, none": found("exchange:zebra"),
        "by message id with *, none": found("message_id:*zebra*"),
        "poison ones, none": found("is:poison"),
        "by status and queue": found(f"status:pending queue:{BUSY}"),
        "by status and queue, few": found(f"status:resolved queue:{BUSY}"),
        "by queue and error": found(f"queue:{BUSY} error:timeout", payloads),
        "by moment of death": found(f"dead:>{moment}"),
        "by attempts, none": found("attempts:>9"),
        "by reason, none": found("reason:expired"),
        "by queue and attempts, none": found(f"queue:{BUSY} attempts:>9"),
        "word, one letter": found(f"m-{count // 2:08d}", payloads),
        "word, about ten": found(f"c{count // 20}", payloads),
        "word, 1 in 500": found("t77", payloads),
        "word, common": found("timeouterror", payloads),
        "word, in all": found("orders", payloads),
        "two words": found("timeouterror alpha", payloads),
        "words, rare and common": found("t77 keyerror", payloads),
        "phrase": found('"alpha bravo"', payloads),
        "beginning of a word": found("timeout*", payloads),
        "word, none": found("zebra", payloads),
        "word, older half": found("june", payloads),
        "word, newer half, oldest first": Question(path="/api/v1/messages?q=july&order=oldest", callers=payloads),
        "two common words never together": found("timeouterror keyerror", payloads),
        "phrase of common words, none": found('"handling of"', payloads),
        "beginning of many words": found("c*", payloads),
        "beginning of all ids": found("0*", payloads),
        "beginning of all ids and a word, none": found("0* zebra", payloads),
        "word that it has not, older half": found("-july", payloads),
        "word that it has not, none": found("-orders", payloads),
        "queue and word that it has not, none": found(f"queue:{BUSY} -orders", payloads),
        "word and error, none": found("keyerror error:zebra", payloads),
        "word and queue": found(f"keyerror queue:{QUIET}", payloads),
        "body path, rare": found(f"body.customer.id:c{count // 20}", payloads),
        "body path, common": found("body.customer.vip:true", payloads),
        "body path, none": found("body.order.id:alpha", payloads),
        "body path with *, none": found("body.order.*:*zebra*", payloads),
        "body path that it has not, none": found("-body.order.id:*", payloads),
        "body path and error, none": found("body.customer.vip:true error:zebra", payloads),
        "header": found("header.x-tenant:t77", payloads),
        "header, 1 in 100,000": found('header.x-shard:"Süd 9"', payloads),
        "header, older half": found("header.x-release:june", payloads),
        "header, none": found("header.x-tenant:zebra", payloads),
        "header, a word of others": found("header.x-tenant:alpha", payloads),
        "header that it has not, none": found("-header.x-tenant:*", payloads),
        "one message": Question(path=letter),
        "its body": Question(path=f"{letter}/body", callers=payloads),
        "its headers": Question(path=f"{letter}/headers", callers=payloads),
        "groups": Question(path="/api/v1/groups"),
        "groups, the largest": Question(path="/api/v1/groups?order=count"),
        "groups of a queue": Question(path=f"/api/v1/groups?queue={BUSY}"),
        "groups by state": Question(path="/api/v1/groups?state=open"),
        "statistics": Question(path="/api/v1/stats"),
        "statistics of a status": Question(path="/api/v1/stats?q=status:resolved"),
        "statistics of a queue": Question(path=f"/api/v1/stats?q=queue:{BUSY}"),
        "statistics of an error": Question(path="/api/v1/stats?q=error_type:KeyError"),
        "statistics of words": Question(path="/api/v1/stats?q=timeouterror", callers=payloads),
        "statistics of queues": Question(path="/api/v1/stats?q=queue:orders.*"),
        "statistics of an error of long ago": Question(path=f"/api/v1/stats?q=error_type:{OLD_ERROR}"),
        "statistics of an error text": Question(path="/api/v1/stats?q=error:timeout", callers=payloads),
        "statistics of an error text, none": Question(path="/api/v1/stats?q=error:zebra", callers=payloads),
        "statistics of a word, older half": Question(path="/api/v1/stats?q=june", callers=payloads),
        "statistics of a word not there, none": Question(path="/api/v1/stats?q=-orders", callers=payloads),
        "statistics of a body path, none": Question(path="/api/v1/stats?q=body.order.id:alpha", callers=payloads),
        "statistics of a header, none": Question(path="/api/v1/stats?q=header.x-tenant:alpha", callers=payloads),
        "time series": Question(path=f"/api/v1/stats/timeseries?until={_moment(BEGIN_MS + count * STEP_MS)}"),
        "time series, 90 days": Question(
            path=f"/api/v1/stats/timeseries?from={_moment(BEGIN_MS - 89 * 86_400_000)}"
            f"&until={_moment(BEGIN_MS + 86_400_000)}&bucket_s=3600"
        ),
        "time series of a queue": Question(
            path=f"/api/v1/stats/timeseries?until={_moment(BEGIN_MS + count * STEP_MS)}&queue={BUSY}"
        ),
        "redrives": Question(path="/api/v1/redrives"),
        "redrives by state": Question(path="/api/v1/redrives?state=cancelled"),
        "one redrive": Question(path=operation),
        "its items": Question(path=f"{operation}/items"),
        "queues": Question(path="/api/v1/queues"),
        "rules": Question(path="/api/v1/rules"),
        "audit": Question(path="/api/v1/audit", callers=("admin",)),
        "audit by action": Question(path="/api/v1/audit?action=letters.resolved", callers=("admin",)),
        "tokens": Question(path="/api/v1/tokens", callers=("admin",)),
        "redactions": Question(path="/api/v1/redactions", callers=("admin",)),
        "Bookly: list": Question(path="/dlq"),
        "Bookly: by status": Question(path="/dlq?status=RESOLVED"),
        "Bookly: by topic": Question(path=f"/dlq?topic={BUSY}.created.3"),
        "Bookly: by service, type": Question(path="/dlq?service=service-3&eventType=OrderPaid"),
        "Bookly: by dates": Question(path=f"/dlq?from={moment}&to={_moment(BEGIN_MS + count * STEP_MS)}"),
        "Bookly: one": Question(path=f"/dlq/{prepared.letter}"),
        "Bookly: statistics": Question(path="/dlq/stats"),
        "pipeline: queues": Question(path="/admin/dlq/queues", callers=("admin",)),
        "pipeline: messages": Question(path=f"/admin/dlq/queues/{BUSY}.parked/messages?limit=20", callers=("admin",)),
    }


async def prepare(url: str, count: int) -> Prepared:
    """Fills a store, and adds tokens and operations: many that took nothing, one that was cancelled before it began."""
    async with await open_store(url) as store:
        await fill(store, count)
        tokens = {name: await _token(store, name) for name in CALLERS}
        page = await store.letters.page(Filter(_of(BUSY)), limit=1, now_ms=_now_ms())
        everything = Selection(filter=Filter(_of(BUSY)), filter_text=f"queue:{BUSY}", limit=min(ITEMS, count // 10))
        nothing = Selection(ids=("-",))
        made = ""
        for number in range(OPERATIONS):
            new = NewOperation(
                kind=OperationKind.REDRIVE,
                selection=everything if number == OPERATIONS // 2 else nothing,
                who="bench",
                why="measured",
            )
            id = make_id(_now_ms(), secrets.randbits(35))
            operation = await store.operations.create(new, id=id, now_ms=_now_ms())
            if operation.total:
                await store.operations.cancel(id, who="bench", now_ms=_now_ms())
                made = id
    if url.startswith("postgresql"):
        await vacuum(url)
    return Prepared(tokens=tokens, letter=page.letters[0].id, operation=made)


def ask_all(address: str, asked: dict[str, Question], tokens: dict[str, str], runs: int) -> dict[str, dict[str, Any]]:
    """p50 and p95 of every question by everybody who may ask it, one request at a time, after two that warm up; and
    whether the last answer was partial or refused."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=120)
    results: dict[str, dict[str, Any]] = {}
    for name, question in asked.items():
        results[name] = {}
        for caller in question.callers:
            headers = {"Authorization": f"Bearer {tokens[caller]}"}
            times = []
            for number in range(runs + 2):
                began_s = time.perf_counter()
                connection.request("GET", question.path, headers=headers)
                answer = connection.getresponse()
                body = answer.read()
                took_ms = (time.perf_counter() - began_s) * 1000
                outcome = _outcome(answer.status, body)
                if outcome is None:
                    sys.exit(f"{name}, {caller}: {question.path} was answered {answer.status}: {body[:500]!r}")
                if number > 1:
                    times.append(took_ms)
            p95 = statistics.quantiles(times, n=20, method="inclusive")[-1]
            told = {"p50_ms": round(statistics.median(times), 2), "p95_ms": round(p95, 2), "size_bytes": len(body)}
            results[name][caller] = {**told, "outcome": outcome, "times_ms": [round(one, 2) for one in times]}
            late = "  !!!" if p95 > BAR_MS else ""
            print(f"  {name:<46}{caller:<11}{told['p50_ms']:>9.2f}{p95:>9.2f} {outcome}{late}", flush=True)
    return results


def _outcome(status: int, body: bytes) -> str | None:
    """Whether an answer is a part only or a refusal for its cost; None for what should not be."""
    if status == 422 and b"filter-too-dear" in body:
        return "refused"
    if status != 200:
        return None
    told = json.loads(body) if body.startswith(b"{") else {}
    return "partial" if told.get("partial") is True else ""


def measure(url: str, broker: Broker, chosen: argparse.Namespace) -> dict[str, Any]:
    """One store, served."""
    print(f"{url.partition(':')[0]}, {chosen.messages} dead letters", flush=True)
    began_s = time.perf_counter()
    prepared = asyncio.run(prepare(url, chosen.messages))
    filled_s = time.perf_counter() - began_s
    asked = {
        name: question
        for name, question in questions(chosen.messages, prepared).items()
        if chosen.only.lower() in name.lower()
    }
    environment = {
        "REDRIVE_URL": broker.url,
        "REDRIVE_MANAGEMENT_URL": broker.management_url,
        "REDRIVE_DATABASE": url,
    }
    with (
        tempfile.TemporaryDirectory(prefix="redrive-bench-") as folder,
        serving(Path(folder), environment, "--match", "*.parked", "--log-level", "warning") as served,
    ):
        until_s = time.monotonic() + 60
        while served.ask("/readyz").status != 200 and time.monotonic() < until_s:
            time.sleep(0.2)
        before_s = _cpu_s(served.process.pid)
        results = ask_all(served.address, asked, prepared.tokens, chosen.runs)
        cpu_s = _cpu_s(served.process.pid) - before_s
    requests = sum(len(one["times_ms"]) + 2 for by in results.values() for one in by.values())
    return {
        "messages": chosen.messages,
        "filled_s": round(filled_s, 1),
        "requests": requests,
        "cpu_ms_per_request": round(cpu_s / requests * 1000, 2),
        "load_average": load_average(),
        "questions": results,
    }


def over_the_bar(results: dict[str, Any]) -> list[str]:
    """What takes longer than it may."""
    return [
        f"{kind}: {name}, {caller}: p95 {one['p95_ms']:.0f} ms"
        for kind in ("sqlite", "postgresql")
        if kind in results
        for name, by in results[kind]["questions"].items()
        for caller, one in by.items()
        if one["p95_ms"] > BAR_MS
    ]


def render(results: dict[str, Any]) -> str:
    """Markdown, for the documentation."""
    kinds = [kind for kind in ("sqlite", "postgresql") if kind in results]
    first = results[kinds[0]]
    costs = ", ".join(f"{kind} {results[kind]['cpu_ms_per_request']:.1f} ms" for kind in kinds)
    late = over_the_bar(results)
    loads = ", ".join(f"{kind} {results[kind]['load_average'][0]:.1f}" for kind in kinds)
    lines = [
        f"{results['date']}, {first['messages']:,} dead letters; p95 in milliseconds, of {results['runs']} requests "
        f"each. The bar is {BAR_MS:.0f} ms: {len(late)} of "
        f"{sum(len(by) for kind in kinds for by in results[kind]['questions'].values())} are over it. "
        f"CPU of the server for a request, on average: {costs}. Load average of the machine (two processors) at the "
        f"end: {loads}. \\* is a partial answer, which says so and can be gone on with; † a refused one.",
        "",
    ]
    for kind in kinds:
        rows = [
            (f"{name}, {caller}", one) for name, by in results[kind]["questions"].items() for caller, one in by.items()
        ]
        lines += slowest(kind, rows)
    lines += [
        "| | " + " | ".join(f"{kind}: {caller}" for kind in kinds for caller in CALLERS) + " |",
        "|---|" + "--:|" * (len(kinds) * len(CALLERS)),
    ]
    for name in first["questions"]:
        cells = [name]
        for kind in kinds:
            by = results[kind]["questions"][name]
            cells += [_cell(by[caller]) if caller in by else "–" for caller in CALLERS]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(one: dict[str, Any]) -> str:
    return f"{one['p95_ms']:.1f}" + {"partial": "\\*", "refused": "†"}.get(one["outcome"], "")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.admin_reads", description=__doc__)
    parser.add_argument("--database", action="append", help="a database URL; repeatable; both kinds of its own without")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", default="", help="questions whose name holds this")
    parser.add_argument("--version", default="4.3", help="of RabbitMQ")
    parser.add_argument("--keep", action="store_true", help="write the results also of databases that were named")
    chosen = parser.parse_args()
    results: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "runs": chosen.runs,
    }
    is_whole = not chosen.database and not chosen.only and chosen.messages >= 1_000_000
    with ExitStack() as stack:
        broker = stack.enter_context(start_broker(chosen.version))
        with broker.channel() as channel:
            for name in QUEUES:
                channel.queue_declare(f"{name}.parked", durable=True, arguments={"x-queue-type": "quorum"})
        for url in chosen.database or _databases(stack):
            results[url.partition(":")[0]] = measure(url, broker, chosen)
    if is_whole or chosen.keep:
        KEPT.write_text(json.dumps(results) + "\n", encoding="utf-8")
        KEPT.with_suffix(".md").write_text(render(results), encoding="utf-8")
    late = over_the_bar(results)
    print("\n".join(late), file=sys.stderr)
    return 1 if late else 0


def _databases(stack: ExitStack) -> list[str]:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-bench-"))
    urls = [f"sqlite:///{folder}/letters.db"]
    programs = find_programs()
    if programs is not None:
        server = Postgres(stack.enter_context(ProcessGroup()), programs, fsync=True)
        server.start()
        urls.append(server.url(server.create_database("bench")))
    return urls


async def _token(store: Store, caller: str) -> str:
    """A new token, also in a store that has some from another run."""
    role = {"admin": Role.ADMIN, "one queue": Role.OPERATOR, "viewer": Role.VIEWER}[caller]
    token = Token(
        id=make_id(_now_ms(), secrets.randbits(35)),
        name=f"{caller} {secrets.token_hex(4)}",
        role=role,
        queues=(BUSY,) if caller == "one queue" else (),
        created_at_ms=_now_ms(),
        created_by="bench",
    )
    text, secret_hash = mint_token(token.id, new_secret())
    await store.tokens.create(token, secret_hash=secret_hash, now_ms=_now_ms())
    return text


def _of(queue: str) -> tuple[NameTerm]:
    return (NameTerm(field="queue", values=(queue,)),)


def _moment(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
