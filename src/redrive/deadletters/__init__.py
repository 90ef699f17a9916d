"""Dead letters at work: collected into the store, sent back to their queues, changed by people.

`collect` moves dead letters from their queues into the store. `redrive` sends them back: planned and started by people,
or by auto-retry. `actions` is what people do with them besides: resolve, edit, delete, peek, restore, export. Each part
is imported when it is first used, so that a command that only lists dead letters loads no AMQP client.
"""

from typing import TYPE_CHECKING

from redrive.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from redrive.deadletters.actions.dead_letter_service import ActionRefused, DeadLetterService, RecordNotFound
    from redrive.deadletters.actions.edits import EditedContent, InvalidEdit, LetterEdit, edit_content
    from redrive.deadletters.actions.peek import PeekedMessage, PeekRefused, PeekResult, peek
    from redrive.deadletters.actions.restore import StillCollected, keep_collectors_away, restored_copy
    from redrive.deadletters.actions.transfer import BadLine, export_lines, import_lines
    from redrive.deadletters.collect.collector import CollectOptions, Collector, CollectReport
    from redrive.deadletters.collect.sources import (
        NAME_PATTERNS,
        Source,
        SourceSelection,
        select_by_name,
        select_from_broker,
        select_from_topology,
    )
    from redrive.deadletters.redrive.auto_retry import AUTO_RETRY_INTERVAL_S, AutoRetry, AutoRetryReport
    from redrive.deadletters.redrive.copier import Copying
    from redrive.deadletters.redrive.copies import CopyRules, Uncopyable
    from redrive.deadletters.redrive.operation_run import RedriveOptions, RedriverParts
    from redrive.deadletters.redrive.pacing import RedriveProgress
    from redrive.deadletters.redrive.preflight import (
        Preflight,
        QueueLimits,
        TargetHealth,
        TargetRefused,
        check_targets,
        exchange_exists,
        judge_for_witness,
        queue_state,
    )
    from redrive.deadletters.redrive.preflight_limits import limits_from_management
    from redrive.deadletters.redrive.redrive_service import RedrivePlan, RedriveService
    from redrive.deadletters.redrive.redriver import Redriver, RunsElsewhere
    from redrive.deadletters.redrive.waiting_operations import run_waiting_operations

_HOMES = {
    "NAME_PATTERNS": "collect.sources",
    "AUTO_RETRY_INTERVAL_S": "redrive.auto_retry",
    "AutoRetry": "redrive.auto_retry",
    "BadLine": "actions.transfer",
    "CollectOptions": "collect.collector",
    "CollectReport": "collect.collector",
    "Collector": "collect.collector",
    "CopyRules": "redrive.copies",
    "Copying": "redrive.copier",
    "DeadLetterService": "actions.dead_letter_service",
    "LetterEdit": "actions.edits",
    "EditedContent": "actions.edits",
    "InvalidEdit": "actions.edits",
    "RecordNotFound": "actions.dead_letter_service",
    "PeekRefused": "actions.peek",
    "PeekResult": "actions.peek",
    "PeekedMessage": "actions.peek",
    "RedrivePlan": "redrive.redrive_service",
    "Preflight": "redrive.preflight",
    "RedriveProgress": "redrive.pacing",
    "QueueLimits": "redrive.preflight",
    "RedriveService": "redrive.redrive_service",
    "Redriver": "redrive.redriver",
    "ActionRefused": "actions.dead_letter_service",
    "AutoRetryReport": "redrive.auto_retry",
    "RedriveOptions": "redrive.operation_run",
    "RedriverParts": "redrive.operation_run",
    "RunsElsewhere": "redrive.redriver",
    "SourceSelection": "collect.sources",
    "Source": "collect.sources",
    "StillCollected": "actions.restore",
    "TargetHealth": "redrive.preflight",
    "TargetRefused": "redrive.preflight",
    "Uncopyable": "redrive.copies",
    "check_targets": "redrive.preflight",
    "edit_content": "actions.edits",
    "exchange_exists": "redrive.preflight",
    "export_lines": "actions.transfer",
    "import_lines": "actions.transfer",
    "judge_for_witness": "redrive.preflight",
    "keep_collectors_away": "actions.restore",
    "limits_from_management": "redrive.preflight_limits",
    "peek": "actions.peek",
    "queue_state": "redrive.preflight",
    "restored_copy": "actions.restore",
    "run_waiting_operations": "redrive.waiting_operations",
    "select_by_name": "collect.sources",
    "select_from_broker": "collect.sources",
    "select_from_topology": "collect.sources",
}
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

__all__ = [
    "AUTO_RETRY_INTERVAL_S",
    "NAME_PATTERNS",
    "ActionRefused",
    "AutoRetry",
    "AutoRetryReport",
    "BadLine",
    "CollectOptions",
    "CollectReport",
    "Collector",
    "CopyRules",
    "Copying",
    "DeadLetterService",
    "EditedContent",
    "InvalidEdit",
    "LetterEdit",
    "PeekRefused",
    "PeekResult",
    "PeekedMessage",
    "Preflight",
    "QueueLimits",
    "RecordNotFound",
    "RedriveOptions",
    "RedrivePlan",
    "RedriveProgress",
    "RedriveService",
    "Redriver",
    "RedriverParts",
    "RunsElsewhere",
    "Source",
    "SourceSelection",
    "StillCollected",
    "TargetHealth",
    "TargetRefused",
    "Uncopyable",
    "check_targets",
    "edit_content",
    "exchange_exists",
    "export_lines",
    "import_lines",
    "judge_for_witness",
    "keep_collectors_away",
    "limits_from_management",
    "peek",
    "queue_state",
    "restored_copy",
    "run_waiting_operations",
    "select_by_name",
    "select_from_broker",
    "select_from_topology",
]
