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
    from redrive.deadletters.actions.restore import StillCollected, keep_collectors_away
    from redrive.deadletters.actions.transfer import export_lines, import_lines
    from redrive.deadletters.collect.collect_loop import CollectOptions, CollectorParts
    from redrive.deadletters.collect.collector import Collector, CollectReport
    from redrive.deadletters.collect.sources import (
        NAME_PATTERNS,
        Source,
        SourceSelection,
        select_by_name,
        select_from_broker,
        select_from_topology,
    )
    from redrive.deadletters.held_leases import LeaseHolder
    from redrive.deadletters.redrive.auto_retry import AUTO_RETRY_INTERVAL_S, AutoRetry, AutoRetryReport
    from redrive.deadletters.redrive.operation_run import RedriveOptions, RedriverParts
    from redrive.deadletters.redrive.preflight import (
        Preflight,
        TargetRefused,
        check_targets,
        judge_for_witness,
        limits_from_management,
    )
    from redrive.deadletters.redrive.redrive_service import RedrivePlan, RedriveService
    from redrive.deadletters.redrive.redriver import Redriver, RunsElsewhere
    from redrive.deadletters.redrive.waiting_operations import run_waiting_operations

_HOMES = {
    "ActionRefused": "actions.dead_letter_service",
    "AUTO_RETRY_INTERVAL_S": "redrive.auto_retry",
    "AutoRetry": "redrive.auto_retry",
    "AutoRetryReport": "redrive.auto_retry",
    "check_targets": "redrive.preflight",
    "CollectOptions": "collect.collect_loop",
    "Collector": "collect.collector",
    "CollectorParts": "collect.collect_loop",
    "CollectReport": "collect.collector",
    "DeadLetterService": "actions.dead_letter_service",
    "edit_content": "actions.edits",
    "EditedContent": "actions.edits",
    "export_lines": "actions.transfer",
    "import_lines": "actions.transfer",
    "InvalidEdit": "actions.edits",
    "judge_for_witness": "redrive.preflight",
    "keep_collectors_away": "actions.restore",
    "LeaseHolder": "held_leases",
    "LetterEdit": "actions.edits",
    "limits_from_management": "redrive.preflight",
    "NAME_PATTERNS": "collect.sources",
    "peek": "actions.peek",
    "PeekedMessage": "actions.peek",
    "PeekRefused": "actions.peek",
    "PeekResult": "actions.peek",
    "Preflight": "redrive.preflight",
    "RecordNotFound": "actions.dead_letter_service",
    "RedriveOptions": "redrive.operation_run",
    "RedrivePlan": "redrive.redrive_service",
    "Redriver": "redrive.redriver",
    "RedriverParts": "redrive.operation_run",
    "RedriveService": "redrive.redrive_service",
    "run_waiting_operations": "redrive.waiting_operations",
    "RunsElsewhere": "redrive.redriver",
    "select_by_name": "collect.sources",
    "select_from_broker": "collect.sources",
    "select_from_topology": "collect.sources",
    "Source": "collect.sources",
    "SourceSelection": "collect.sources",
    "StillCollected": "actions.restore",
    "TargetRefused": "redrive.preflight",
}
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

__all__ = [
    "AUTO_RETRY_INTERVAL_S",
    "NAME_PATTERNS",
    "ActionRefused",
    "AutoRetry",
    "AutoRetryReport",
    "CollectOptions",
    "CollectReport",
    "Collector",
    "CollectorParts",
    "DeadLetterService",
    "EditedContent",
    "InvalidEdit",
    "LeaseHolder",
    "LetterEdit",
    "PeekRefused",
    "PeekResult",
    "PeekedMessage",
    "Preflight",
    "RecordNotFound",
    "RedriveOptions",
    "RedrivePlan",
    "RedriveService",
    "Redriver",
    "RedriverParts",
    "RunsElsewhere",
    "Source",
    "SourceSelection",
    "StillCollected",
    "TargetRefused",
    "check_targets",
    "edit_content",
    "export_lines",
    "import_lines",
    "judge_for_witness",
    "keep_collectors_away",
    "limits_from_management",
    "peek",
    "run_waiting_operations",
    "select_by_name",
    "select_from_broker",
    "select_from_topology",
]
