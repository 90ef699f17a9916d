"""The consumer runtime: handlers for queues, run so that no message is lost.

From the outside in: `app` is what authors write (`signatures`, `consumer_options` and `codecs` read it), `app_runner`
connects it and stops it, `subscription` keeps one queue consumed. One delivery goes through `delivery_handler`:
`admission` (may it run now?), `concurrency` (a slot), `handler_call` (the handler), and `settlement`, which decides and
settles. `exclusive_run` protects from messages that crash their consumers, `queue_pause` from dependencies that are
down.
"""

from redrive.runtime.admission import Admission, ReplaceByCopy, RunExclusively
from redrive.runtime.app import App, Consumption, Source
from redrive.runtime.app_runner import GRACE_S, THREADS_NAME, AppRunner, AppRunOptions
from redrive.runtime.codecs import JSON, Codec, Json, UnsupportedType
from redrive.runtime.consumer_options import CRASHES_MAX, PAUSE_ON, Middleware
from redrive.runtime.errors import AppError, InvalidApp, PublishFailed, TopologyMissing, UnsupportedBroker
from redrive.runtime.message import Message
from redrive.runtime.process_context import Checkpoint
from redrive.runtime.push import InvalidPush, Pusher, PushTarget, is_signed, read_secrets
from redrive.runtime.run_records import RECORD_PATH, LastRun, RunRecord, RunRecords
from redrive.runtime.worker_processes import WorkerProcesses, wait_parent_gone

__all__ = [
    "CRASHES_MAX",
    "GRACE_S",
    "JSON",
    "PAUSE_ON",
    "RECORD_PATH",
    "THREADS_NAME",
    "Admission",
    "App",
    "AppError",
    "AppRunOptions",
    "AppRunner",
    "Checkpoint",
    "Codec",
    "Consumption",
    "InvalidApp",
    "InvalidPush",
    "Json",
    "LastRun",
    "Message",
    "Middleware",
    "PublishFailed",
    "PushTarget",
    "Pusher",
    "ReplaceByCopy",
    "RunExclusively",
    "RunRecord",
    "RunRecords",
    "Source",
    "TopologyMissing",
    "UnsupportedBroker",
    "UnsupportedType",
    "WorkerProcesses",
    "is_signed",
    "read_secrets",
    "wait_parent_gone",
]
