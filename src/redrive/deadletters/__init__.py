"""Dead letters in use: collected, sent back, retried, peeked at.

`collector` takes them out of their queues (`sources` says which), `redriver` runs the operations that send them back,
`auto_retry` starts such operations by itself; `desk` and `redrive_desk` are where people decide; `transfer` moves them
between databases. Each part is imported when it is first used: who lists dead letters needs no AMQP.
"""

from typing import TYPE_CHECKING

from redrive.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from redrive.deadletters.auto_retry import AUTO_RETRY_INTERVAL_S, AutoRetry, Round
    from redrive.deadletters.collector import CollectOptions, Collector, CollectReport
    from redrive.deadletters.copies import CopyRules, Uncopyable
    from redrive.deadletters.desk import Desk, Missing, Refused
    from redrive.deadletters.editing import Edit, Edited, InvalidEdit, edit_content
    from redrive.deadletters.peeking import Peeked, PeekedMessage, PeekRefused, peek
    from redrive.deadletters.preflight import (
        Preflight,
        QueueLimits,
        TargetHealth,
        TargetRefused,
        check_targets,
        exchange_exists,
        judge_for_witness,
        queue_state,
    )
    from redrive.deadletters.preflight_limits import limits_by
    from redrive.deadletters.redrive_desk import Plan, RedriveDesk
    from redrive.deadletters.redriver import Redriver, RunsElsewhere
    from redrive.deadletters.returning import StillCollected, keep_collectors_away, returned_copy
    from redrive.deadletters.runner import RunnerParts, RunOptions
    from redrive.deadletters.runner_copying import Copying
    from redrive.deadletters.runner_loop import run_waiting
    from redrive.deadletters.runner_pace import Progress
    from redrive.deadletters.sources import (
        NAME_PATTERNS,
        Selected,
        Source,
        select_by_name,
        select_from_broker,
        select_from_topology,
    )
    from redrive.deadletters.transfer import BadLine, export_lines, import_lines

_HOMES = {
    "NAME_PATTERNS": "sources",
    "AUTO_RETRY_INTERVAL_S": "auto_retry",
    "AutoRetry": "auto_retry",
    "BadLine": "transfer",
    "CollectOptions": "collector",
    "CollectReport": "collector",
    "Collector": "collector",
    "CopyRules": "copies",
    "Copying": "runner_copying",
    "Desk": "desk",
    "Edit": "editing",
    "Edited": "editing",
    "InvalidEdit": "editing",
    "Missing": "desk",
    "PeekRefused": "peeking",
    "Peeked": "peeking",
    "PeekedMessage": "peeking",
    "Plan": "redrive_desk",
    "Preflight": "preflight",
    "Progress": "runner_pace",
    "QueueLimits": "preflight",
    "RedriveDesk": "redrive_desk",
    "Redriver": "redriver",
    "Refused": "desk",
    "Round": "auto_retry",
    "RunOptions": "runner",
    "RunnerParts": "runner",
    "RunsElsewhere": "redriver",
    "Selected": "sources",
    "Source": "sources",
    "StillCollected": "returning",
    "TargetHealth": "preflight",
    "TargetRefused": "preflight",
    "Uncopyable": "copies",
    "check_targets": "preflight",
    "edit_content": "editing",
    "exchange_exists": "preflight",
    "export_lines": "transfer",
    "import_lines": "transfer",
    "judge_for_witness": "preflight",
    "keep_collectors_away": "returning",
    "limits_by": "preflight_limits",
    "peek": "peeking",
    "queue_state": "preflight",
    "returned_copy": "returning",
    "run_waiting": "runner_loop",
    "select_by_name": "sources",
    "select_from_broker": "sources",
    "select_from_topology": "sources",
}
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

__all__ = [
    "AUTO_RETRY_INTERVAL_S",
    "NAME_PATTERNS",
    "AutoRetry",
    "BadLine",
    "CollectOptions",
    "CollectReport",
    "Collector",
    "CopyRules",
    "Copying",
    "Desk",
    "Edit",
    "Edited",
    "InvalidEdit",
    "Missing",
    "PeekRefused",
    "Peeked",
    "PeekedMessage",
    "Plan",
    "Preflight",
    "Progress",
    "QueueLimits",
    "RedriveDesk",
    "Redriver",
    "Refused",
    "Round",
    "RunOptions",
    "RunnerParts",
    "RunsElsewhere",
    "Selected",
    "Source",
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
    "limits_by",
    "peek",
    "queue_state",
    "returned_copy",
    "run_waiting",
    "select_by_name",
    "select_from_broker",
    "select_from_topology",
]
