"""One message through one queue in virtual time: what a topology and its consumer would do with it, without a broker.

    script                what the handler does, run by run
    simulated_broker      the embedded engine of one RabbitMQ version, with the topology on it
    simulated_consumers   the consumer of the queue: Redrive's, or one that does what the script says
    simulator             moves the message from delivery to delivery until it ends
    timeline              the result: events and an end state
    transcript            the timeline as text and as JSON

Decisions come from `core`, commands from the shapes, and broker behaviour from the embedded engine: this room has no
rules of its own.
"""

from redrive.simulation.script import InvalidScript, Script, parse_script
from redrive.simulation.simulated_broker import PublishRoute
from redrive.simulation.simulator import UnknownQueue, UnreachableQueue, simulate
from redrive.simulation.timeline import EndState, EventKind, Timeline, TimelineEvent
from redrive.simulation.transcript import as_json, as_text

__all__ = [
    "EndState",
    "EventKind",
    "InvalidScript",
    "PublishRoute",
    "Script",
    "Timeline",
    "TimelineEvent",
    "UnknownQueue",
    "UnreachableQueue",
    "as_json",
    "as_text",
    "parse_script",
    "simulate",
]
