"""How operations are told to a caller: with their speed, why they wait, and without what the caller may not see."""

from typing import Any

from redrive.admin.access import View
from redrive.admin.selecting import told_text
from redrive.admin.services import Services
from redrive.records import Operation, OperationState, operation_json


def told_operation(operation: Operation, view: View, services: Services, *, note: str = "") -> dict[str, Any]:
    """An operation as `shapes.redrives.Redrive` has it. `note`: why it waits, where that is known and not stored."""
    told = operation_json(operation)
    speed = measured_per_s(operation, now_ms=services.clock_ms())
    return {
        **told,
        "selection": told_text(view, operation.selection_text),
        "note": operation.note or note or _why_waiting(operation, services) or none_sent_text(operation),
        "measured_per_s": speed,
        "eta_s": None if speed is None else operation.left / speed,
    }


def measured_per_s(operation: Operation, *, now_ms: int) -> float | None:
    """Items a second since it was started; None where it does not run, or has not ended any."""
    if operation.state is not OperationState.RUNNING or operation.started_at_ms is None:
        return None
    done, passed_ms = operation.total - operation.left, now_ms - operation.started_at_ms
    return done * 1000 / passed_ms if done > 0 and passed_ms > 0 else None


def none_sent_text(operation: Operation, reason: str = "its items say why") -> str:
    """How many an ended operation has skipped, where it sent none; "" otherwise."""
    if operation.ended_at_ms is None or operation.sent or not operation.skipped:
        return ""
    were = "was" if operation.skipped == 1 else "were"
    return f"nothing was sent: {operation.skipped:,} of {operation.total:,} {were} skipped ({reason})"


def _why_waiting(operation: Operation, services: Services) -> str:
    worker = services.workers()
    if operation.state is not OperationState.WAITING or worker.is_ready or not worker.reason:
        return ""
    return f"it waits: {worker.reason_without_address}"
