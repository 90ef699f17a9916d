"""The consumer runtime: handlers for queues, run so that no message is lost.

From the outside in: `app` is what authors write (`signatures`, `options` and `codecs` read it), `runner` connects it
and stops it, `subscription` keeps one queue consumed. One delivery goes through `admission` (may it run now?),
`calling` (the handler), core's decision table, a shape's commands, and `executing`, which acks nothing whose copy is
not confirmed. `solitude` and `pausing` are the two protections: from messages that kill, and from dependencies that are
down.
"""

from redrive.runtime.admission import Admission
from redrive.runtime.app import App, Consumption, Source
from redrive.runtime.codecs import JSON, Codec, Json, UnsupportedType
from redrive.runtime.errors import AppError, InvalidApp, PublishFailed, TopologyMissing, UnsupportedBroker
from redrive.runtime.executing import Checkpoint
from redrive.runtime.message import Message
from redrive.runtime.options import CRASHES_MAX, PAUSE_ON, Middleware
from redrive.runtime.processes import Fleet, wait_parent_gone
from redrive.runtime.push import InvalidPush, Pusher, PushTarget, is_signed, read_secrets
from redrive.runtime.run_records import RECORD_PATH, LastRun, RunRecord, RunRecords
from redrive.runtime.runner import GRACE_S, THREADS_NAME, Runner, RunOptions

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
    "Checkpoint",
    "Codec",
    "Consumption",
    "Fleet",
    "InvalidApp",
    "InvalidPush",
    "Json",
    "LastRun",
    "Message",
    "Middleware",
    "PublishFailed",
    "PushTarget",
    "Pusher",
    "RunOptions",
    "RunRecord",
    "RunRecords",
    "Runner",
    "Source",
    "TopologyMissing",
    "UnsupportedBroker",
    "UnsupportedType",
    "is_signed",
    "read_secrets",
    "wait_parent_gone",
]
