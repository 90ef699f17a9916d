"""`redrive dlq redrive`, `retry` and `return`: send dead letters to where they failed, elsewhere, or to their DLQ."""

from dataclasses import dataclass, replace

import click

from redrive.cli.console import EXIT_COULD_NOT, EXIT_FOUND, keep_result, say
from redrive.cli.dlq.foreground_run import items_not_sent, report, run_in_foreground
from redrive.cli.dlq.output import fail_line, is_confirmed, print_json, warn_line
from redrive.cli.dlq.plans import plan_json, print_plan, report_nothing_to_send, say_elsewhere
from redrive.cli.dlq.selection import connection_settings_of, run_to_end, selection_of
from redrive.cli.dlq.shared_options import (
    ConnectionOptions,
    DurationOption,
    RateOption,
    SelectionOptions,
    with_connection,
    with_format,
    with_selection,
    with_who,
)
from redrive.cli.text_tables import counted
from redrive.core import Severity
from redrive.records import (
    LetterEvent,
    NewOperation,
    Operation,
    OperationItem,
    OperationKind,
    OperationState,
    Preview,
    RedriveTarget,
    Selection,
    Status,
    statuses_allowing,
)
from redrive.stores import Store
from redrive.wiring import RedriveBroker, opened_broker, opened_store, rare_garbage_collection

RAMP = (1, 2, 5, 20)
_NO_SELECTION = Selection()
_LEFT_ALONE = {
    Status.RETRYING: "it is retrying: a copy was sent and may come back; to send another copy, first run: "
    "redrive dlq reopen ID --end-waiting",
    Status.WAITING: "it is waiting: its copy lies in its target; to send another copy, first run: "
    "redrive dlq reopen ID --end-waiting",
    Status.RESOLVED: "it is resolved; to send it, first run: redrive dlq reopen ID",
}
_ENDED = (OperationState.DONE, OperationState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """How the command was asked to run."""

    yes: bool
    dry_run: bool
    form: str
    is_brief: bool = False
    has_witness: bool = False


@click.command("redrive")
@with_selection
@click.option("--to-queue", metavar="Q", help="Another queue instead of the one they failed in.")
@click.option("--to-exchange", metavar="X", help="An exchange; {queue} in it is the failed queue.")
@click.option("--routing-key", metavar="K", help="With --to-exchange; by default each message's first one.")
@click.option("--rate", type=RateOption(), metavar="N/s", help="Maximum messages per second.")
@click.option(
    "--ramp", is_flag=True, help="1, 2, 5, then 20 at a time; pauses as soon as one comes back. A collector must run."
)
@click.option("--keep-attempts", is_flag=True, help="Go on counting attempts instead of starting afresh.")
@click.option("--include-in-doubt", is_flag=True, help="Also those in doubt, which may make duplicates.")
@click.option(
    "--settle",
    "settle_ms",
    type=DurationOption(),
    default="10m",
    show_default=True,
    metavar="T",
    help="Resolve what has not come back for so long.",
)
@click.option("--idempotency-key", metavar="TEXT", help="A request with the same key is done once.")
@click.option("--witness", is_flag=True, help="Settle doubts by second copies in a queue of this operation.")
@click.option("--why", default="", metavar="TEXT", help="For the audit.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent where, and send nothing.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@with_format
@with_who
@with_connection
def redrive_command(
    connection: ConnectionOptions,
    wanted: SelectionOptions,
    to_queue: str | None,
    to_exchange: str | None,
    routing_key: str | None,
    rate: float | None,
    ramp: bool,
    keep_attempts: bool,
    include_in_doubt: bool,
    settle_ms: int,
    idempotency_key: str | None,
    witness: bool,
    why: str,
    dry_run: bool,
    yes: bool,
    form: str,
    who: str,
) -> None:
    """Send dead letters back: pending and failed ones, the longest dead first.

    The selection is frozen, the target shown with its consumers and backlog, and you are asked. Each copy is confirmed
    by the broker; what it refuses stays a dead letter. One that has not come back for --settle is resolved. Ctrl-C
    pauses; `redrive dlq operations resume ID` continues.

    \b
    Exit codes: 0 all sent or nothing to send; 1 some not sent, an ID left alone, or paused; 2 could not.

    \b
    Examples:
      redrive dlq redrive --queue orders
      redrive dlq redrive --filter 'error:Timeout dead:>2h' --rate 50/s --ramp --yes
      redrive dlq redrive --queue q.thumbnail.dlq --limit 10 --to-exchange 'retry.{queue}' --routing-key retry
    """
    new = NewOperation(
        kind=OperationKind.REDRIVE,
        selection=_NO_SELECTION,
        target=_target(to_queue, to_exchange, routing_key),
        rate_per_s=rate,
        keep_attempts=keep_attempts,
        ramp=RAMP if ramp else (),
        settle_s=settle_ms / 1000,
        who=who,
        why=why,
        idempotency_key=idempotency_key,
    )
    asked = _Asked(yes=yes, dry_run=dry_run, form=form, has_witness=witness)
    _send(connection, wanted, new, asked, includes_in_doubt=include_in_doubt)


@click.command("retry")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--keep-attempts", is_flag=True, help="Go on counting attempts instead of starting afresh.")
@click.option("--why", default="", metavar="TEXT", help="For the audit.")
@with_format
@with_who
@with_connection
def retry_command(
    connection: ConnectionOptions, ids: tuple[str, ...], keep_attempts: bool, why: str, form: str, who: str
) -> None:
    """Redrive single dead letters to the queue they failed in, without asking. Attempts start afresh.

    One in doubt is sent too, marked as a possible duplicate. A resolved one must be reopened first. What is not sent
    is named, with the reason.

    \b
    Exit codes: 0 all sent; 1 some not sent; 2 could not.

    \b
    Example:
      redrive dlq retry 1hv7 --why 'the supplier is back'
    """
    new = NewOperation(
        kind=OperationKind.REDRIVE, selection=_NO_SELECTION, keep_attempts=keep_attempts, who=who, why=why
    )
    _send(connection, SelectionOptions(ids=ids), new, _Asked(yes=True, dry_run=False, form=form, is_brief=True))


@click.command("return")
@with_selection
@click.option("--rate", type=RateOption(), metavar="N/s", help="Maximum messages per second.")
@click.option("--why", default="", metavar="TEXT", help="For the audit.")
@click.option("--dry-run", is_flag=True, help="Show what would go where, and send nothing.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@with_format
@with_who
@with_connection
def return_command(
    connection: ConnectionOptions,
    wanted: SelectionOptions,
    rate: float | None,
    why: str,
    dry_run: bool,
    yes: bool,
    form: str,
    who: str,
) -> None:
    """Restore dead letters to the dead-letter queues they were collected from, unchanged.

    Pending and failed ones; resolved, retrying and waiting ones are left alone. What was restored is resolved here.

    The way out of collecting: refused while `redrive collect` collects one of the queues, and afterwards they are not
    collected again until `redrive collect --resume-queue Q`.

    \b
    Examples:
      redrive dlq return --queue orders.parked
      redrive dlq return --all --yes
    """
    new = NewOperation(kind=OperationKind.RESTORE, selection=_NO_SELECTION, rate_per_s=rate, who=who, why=why)
    _send(connection, wanted, new, _Asked(yes=yes, dry_run=dry_run, form=form))


def _send(
    options: ConnectionOptions,
    wanted: SelectionOptions,
    new: NewOperation,
    asked: _Asked,
    *,
    includes_in_doubt: bool = False,
) -> None:
    left: dict[str, str] = {}

    keep_result()

    async def work() -> tuple[Operation, list[OperationItem]] | None:
        connection = connection_settings_of(options)
        async with opened_store(connection, creates=False) as store:
            selection = await selection_of(
                store,
                wanted,
                moment_ms=store.clock_ms(),
                includes_in_doubt=includes_in_doubt,
                # A repeated request must be equal to the first; a bound in time would make it another.
                freezes=new.idempotency_key is None,
                vhost=connection.target.vhost,
            )
            preview = await store.operations.preview(selection, now_ms=store.clock_ms(), is_patient=True)
            request = replace(new, selection=selection)
            if new.idempotency_key is None:  # with a key, an earlier run of this request may have sent them
                left.update(await _left_alone(store, selection))
            if preview.total == 0 and new.idempotency_key is None:
                elsewhere = await selection_of(
                    store, wanted, moment_ms=store.clock_ms(), includes_in_doubt=includes_in_doubt
                )
                report_nothing_to_send(preview, form=asked.form)
                others = await store.operations.preview(elsewhere, now_ms=store.clock_ms(), is_patient=True)
                say_elsewhere(others, connection.target.vhost)
                return None
            async with opened_broker(connection, store, has_witness=asked.has_witness) as broker:
                if not await _is_wanted(broker, request, preview, asked):
                    return None
                async with broker.without_collectors(request):
                    operation = await broker.service.start(request)
                    if operation.state not in _ENDED:
                        operation = await run_in_foreground(store, broker, operation)
                return operation, await items_not_sent(store, operation)

    with rare_garbage_collection():
        result = run_to_end(work)
    if result is not None and new.kind is OperationKind.RESTORE:
        say("Collecting these queues is stopped; go on with: redrive collect --resume-queue QUEUE")
    for letter, reason in left.items():
        warn_line(f"{letter} is left alone: {reason}")
    if result is not None:
        report(*result, form=asked.form)
    if left:
        raise SystemExit(EXIT_FOUND)


async def _left_alone(store: Store, selection: Selection) -> dict[str, str]:
    """Dead letters whose ids were given but whose status does not allow sending, with the reason."""
    found = {}
    for letter_id in selection.ids:
        letter = await store.letters.get(letter_id)
        if letter is not None and letter.status not in statuses_allowing(LetterEvent.CLAIMED):
            found[letter.id] = _LEFT_ALONE.get(letter.status, f"it is {letter.status}")
    return found


async def _is_wanted(broker: RedriveBroker, request: NewOperation, preview: Preview, asked: _Asked) -> bool:
    """Shows the plan and asks. False after a dry run; ends the program if the answer is no or the targets refuse it."""
    preflight = (await broker.plan(request)).preflight
    if asked.form == "json" and asked.dry_run:
        print_json(plan_json(preview, preflight))
    elif asked.form == "text" and not asked.is_brief:
        print_plan(preview, preflight)
    for finding in () if preflight is None else preflight.findings:
        (fail_line if finding.severity is Severity.ERROR else warn_line)(finding.text)
    if preflight is not None and preflight.errors:
        say("Nothing was changed.")
        raise SystemExit(EXIT_COULD_NOT)
    if asked.dry_run:
        say("A dry run: nothing was changed.")
        return False
    verb = "Return" if request.kind is OperationKind.RESTORE else "Redrive"
    if not is_confirmed(f"{verb} {counted(preview.total, 'dead letter')}?", yes=asked.yes):
        raise SystemExit(EXIT_COULD_NOT)
    return True


def _target(to_queue: str | None, to_exchange: str | None, routing_key: str | None) -> RedriveTarget:
    if to_queue is not None:
        if to_exchange is not None or routing_key is not None:
            raise click.UsageError("--to-queue says already where; leave out --to-exchange and --routing-key.")
        return RedriveTarget(exchange="", routing_key=to_queue)
    if routing_key is not None and to_exchange is None:
        raise click.UsageError("--routing-key needs --to-exchange; for a queue write --to-queue.")
    return RedriveTarget(exchange=to_exchange, routing_key=routing_key)
