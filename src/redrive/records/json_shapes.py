"""Records as JSON has them: what `redrive dlq … --format json` prints and the admin API answers, from one place.

Moments are ISO 8601 in UTC with milliseconds; what is not known is null, never missing. The shapes are documented in
docs/reference/command-line.md.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from redrive.core import Attempt
from redrive.records.access import Token
from redrive.records.audit import AuditEntry
from redrive.records.groups import Group, GroupStateChange
from redrive.records.letters import DeadLetter, LifecycleEntry
from redrive.records.operations import Operation, OperationItem
from redrive.records.retry_rules import RetryRule


def moment_json(at_ms: int | None) -> str | None:
    """`2026-01-31T12:00:00.000Z`."""
    if at_ms is None:
        return None
    second = _second_text(at_ms // 1000)
    return None if second is None else f"{second}.{at_ms % 1000:03d}Z"


def letter_json(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter without its content."""
    has_error = letter.error_type is not None or letter.error_message is not None or letter.status_code is not None
    error = {"type": letter.error_type, "message": letter.error_message, "status_code": letter.status_code}
    return {
        "id": letter.id,
        "version": letter.version,
        "status": str(letter.status),
        "status_reason": letter.status_reason,
        "queue": letter.queue,
        "dlq": letter.dlq,
        "vhost": letter.vhost,
        "exchange": letter.exchange,
        "routing_key": letter.routing_key,
        "reason": letter.reason,
        "told_by": letter.told_by,
        "error": error if has_error else None,
        "attempts": letter.attempts,
        "message_id": letter.message_id,
        "correlation_id": letter.correlation_id,
        "type": letter.type,
        "service": letter.service,
        "group": letter.group_id,
        "size_bytes": letter.size_bytes,
        "dead_at": moment_json(letter.dead_at_ms),
        "collected_at": moment_json(letter.collected_at_ms),
        "updated_at": moment_json(letter.updated_at_ms),
        "redrives": letter.redrives,
        "returns": letter.returns,
        "poison": letter.is_poison,
        "edited": letter.is_edited,
        "due_at": moment_json(letter.due_at_ms),
        "silent_at": moment_json(letter.silent_at_ms),
        "resolved_by": letter.resolved_by,
        "copy_of": letter.copy_of,
        "operation": letter.operation_id,
    }


def attempt_json(attempt: Attempt) -> dict[str, Any]:
    """One failed run of a handler."""
    return {"number": attempt.number, "at": moment_json(attempt.at_ms), "error": attempt.error}


def lifecycle_json(happening: LifecycleEntry) -> dict[str, Any]:
    """One entry of a dead letter's life."""
    return {
        "at": moment_json(happening.at_ms),
        "event": happening.event,
        "who": happening.who,
        "detail": happening.detail,
        "operation": happening.operation_id,
    }


def operation_json(operation: Operation) -> dict[str, Any]:
    """An operation and how far it is."""
    return {
        "id": operation.id,
        "kind": str(operation.kind),
        "state": str(operation.state),
        "selection": operation.selection_text,
        "target": {"exchange": operation.target.exchange, "routing_key": operation.target.routing_key},
        "rate_per_s": operation.rate_per_s,
        "keep_attempts": operation.keep_attempts,
        "ramp": list(operation.ramp),
        "settle_s": operation.settle_s,
        "who": operation.who,
        "why": operation.why,
        "total": operation.total,
        "sent": operation.sent,
        "refused": operation.refused,
        "in_doubt": operation.in_doubt,
        "skipped": operation.skipped,
        "left": operation.left,
        "created_at": moment_json(operation.created_at_ms),
        "started_at": moment_json(operation.started_at_ms),
        "ended_at": moment_json(operation.ended_at_ms),
        "note": operation.note,
    }


def item_json(item: OperationItem) -> dict[str, Any]:
    """One dead letter in an operation."""
    return {
        "id": item.letter_id,
        "queue": item.queue,
        "state": str(item.state),
        "reason": item.reason,
        "at": moment_json(item.at_ms),
    }


def group_json(group: Group) -> dict[str, Any]:
    """A group with the last state that somebody set."""
    return {
        "id": group.id,
        "title": group.title,
        "queue": group.queue,
        "error_type": group.error_type,
        "state": str(group.state),
        "said": None if group.state_change is None else state_change_json(group.state_change),
        "first_seen": moment_json(group.first_seen_ms),
        "last_seen": moment_json(group.last_seen_ms),
        "count": group.count,
        "by_status": {str(status): count for status, count in group.by_status.items()},
        "redriven": group.redriven,
        "returned": group.returned,
        "notes": [{"at": moment_json(note.at_ms), "who": note.who, "text": note.text} for note in group.notes],
    }


def state_change_json(change: GroupStateChange) -> dict[str, Any]:
    """The last state that somebody set on a group."""
    return {"state": str(change.state), "at": moment_json(change.at_ms), "who": change.who, "why": change.why}


def rule_json(rule: RetryRule) -> dict[str, Any]:
    """A rule of auto-retry."""
    return {
        "scope": rule.scope,
        "enabled": rule.enabled,
        "attempts": rule.attempts,
        "first_ms": rule.first_ms,
        "max_ms": rule.ceiling_ms,
        "settle_ms": rule.settle_ms,
        "declared": rule.is_declared,
    }


def audit_json(entry: AuditEntry) -> dict[str, Any]:
    """One entry of the audit trail."""
    return {
        "at": moment_json(entry.at_ms),
        "who": entry.who,
        "token": entry.token_id or None,
        "action": entry.action,
        "subject": entry.subject,
        "count": entry.count,
        "why": entry.why,
        "detail": entry.detail,
        "place": entry.place,
        "hash": None if entry.hash is None else entry.hash.hex(),
    }


def token_json(token: Token, *, now_ms: int) -> dict[str, Any]:
    """A token without its secret, as it is now."""
    return {
        "id": token.id,
        "name": token.name,
        "role": str(token.role),
        "queues": list(token.queues),
        "payloads": token.shows_payloads,
        "state": token.state(now_ms),
        "created_at": moment_json(token.created_at_ms),
        "created_by": token.created_by,
        "expires_at": moment_json(token.expires_at_ms),
        "revoked_at": moment_json(token.revoked_at_ms),
    }


@lru_cache(maxsize=8_192)
def _second_text(at_s: int) -> str | None:
    """A page has the same seconds again and again, and the calendar is the slowest part of it."""
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    except (OverflowError, ValueError, OSError):
        return None
