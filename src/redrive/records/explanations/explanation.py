"""Explains one dead letter: puts together what the headers of all frameworks and the broker say."""

from dataclasses import replace

from redrive.core import ReceivedMessage, RedriveError, headers, read_count, read_history
from redrive.records.explanations.framework_headers import (
    MESSAGE_BYTES_MAX,
    TYPE_BYTES_MAX,
    FrameworkReport,
    read_framework_headers,
    split_error,
    type_of,
)
from redrive.records.explanations.group_ids import GroupIdentity, identify_group
from redrive.records.explanations.header_values import NAME_BYTES_MAX, TolerantMessage, plausible_ms, text_of
from redrive.records.explanations.queue_names import guess_failed_queue, owner_of
from redrive.records.explanations.x_death import find_failed_queue, latest_ms, read_deaths
from redrive.records.letters import DeadLetter, Explanation

_NOBODY = FrameworkReport(by="nobody", reason="unknown")


def explain(
    letter: ReceivedMessage,
    *,
    dlq: str,
    now_ms: int,
    service: str | None = None,
    known_queue: str | None = None,
    group_key: bytes = b"",
) -> Explanation:
    """What is known about a message taken from `dlq`. Never raises, whatever its headers hold; every text is bounded.

    `service` is the failed queue's declared one, `known_queue` the queue that is known to be dead-lettered into `dlq`,
    where just one is, `group_key` the secret of the database that it goes into.
    """
    careful = TolerantMessage(letter)
    deaths = read_deaths(careful)
    failed = find_failed_queue(deaths, careful, known_queue=known_queue)
    report = read_framework_headers(careful)
    if report is None:
        report = _NOBODY if failed is None else FrameworkReport(by="x-death", reason=failed.reason)
    attempts = report.attempts
    if attempts is None and failed is not None and failed.rejections > 0 and report.by in ("x-death", "event-bus"):
        attempts = failed.rejections
    if report.by in ("x-death", "nobody"):
        report, attempts = _with_history(report, attempts, letter)

    queue = report.queue or careful.name(headers.ORIGINAL_QUEUE)
    if not queue:
        queue = failed.queue if failed is not None else known_queue or guess_failed_queue(dlq)
    owner = owner_of(dlq, queue=queue, known_queue=known_queue)
    message_type = _text(careful, "type") or type_of(careful)
    group = identify_group(report, queue=queue, type=message_type, owner=owner, key=group_key)
    return Explanation(
        queue=queue,
        owner=owner,
        exchange=_first(
            report.exchange,
            careful.name(headers.ORIGINAL_EXCHANGE),
            None if failed is None else failed.exchange,
            otherwise=letter.exchange,
        ),
        routing_key=_first(
            report.routing_key,
            careful.name(headers.ORIGINAL_ROUTING_KEY),
            None if failed is None else failed.routing_key,
            otherwise=letter.routing_key,
        ),
        reason=report.reason,
        told_by=report.by,
        error_type=report.error_type,
        error_message=report.error_message,
        status_code=report.status_code,
        stack=report.stack,
        attempts=attempts,
        message_id=_text(careful, "message_id") or careful.text(headers.MESSAGE_ID),
        correlation_id=_text(careful, "correlation_id"),
        type=message_type,
        service=service or _text(careful, "app_id"),
        died_at_ms=plausible_ms(report.died_at_ms, now_ms) or plausible_ms(latest_ms(deaths), now_ms),
        group_id=group.id,
        group_title=group.title,
    )


def _with_history(
    report: FrameworkReport, attempts: int | None, letter: ReceivedMessage
) -> tuple[FrameworkReport, int | None]:
    """The same with what our own copies have written down of the runs before: a reject can write nothing itself. The
    broker counts only those since the last copy."""
    try:
        history = read_history(letter)
        counted = read_count(letter.header(headers.ATTEMPTS_BEFORE))
    except RedriveError:
        return report, attempts  # its headers can't be read
    if not history:
        return report, attempts
    last = history[-1]
    before = max(last.number, counted)
    runs = before + (0 if attempts is None else attempts)
    kind, message = split_error(text_of(last.error, TYPE_BYTES_MAX + MESSAGE_BYTES_MAX) or "")
    return replace(report, error_type=kind, error_message=message or None), runs if runs > 0 else None


def with_failed_queue(explanation: Explanation, queue: str, *, owner: str | None, group_key: bytes) -> Explanation:
    """The same explanation, of a message that is known to have failed in this queue of this owner, whatever it says."""
    if explanation.queue == queue:
        return explanation
    group = identify_group(explanation, queue=queue, type=explanation.type, owner=owner, key=group_key)
    return replace(explanation, queue=queue, owner=owner, group_id=group.id, group_title=group.title)


def group_of(letter: DeadLetter, *, group_key: bytes) -> GroupIdentity:
    """The kind of a letter that another store has kept, as this one would say it: a file may say anything."""
    owner = owner_of(letter.dlq, queue=letter.queue)
    return identify_group(letter, queue=letter.queue, type=letter.type, owner=owner, key=group_key)


def _text(letter: TolerantMessage, name: str) -> str | None:
    return text_of(letter.attribute(name), NAME_BYTES_MAX) or None


def _first(*names: str | None, otherwise: str) -> str:
    """The first that a header says, else how it arrived. Empty is a name: the default exchange's."""
    for name in names:
        if name is not None:
            return name
    return text_of(otherwise, 3 * NAME_BYTES_MAX) or ""
