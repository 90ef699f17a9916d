"""A message's life in virtual time: what a topology and its consumer would make of it, without any broker running.

`script` is what the handler does, `stage` a broker of one profile with the topology on it, `consumers` who reads the
queue, `playing` one message's way through it all, `lives` the result, `telling` the result for people and for machines.
The decisions are core's, the commands the shapes', the broker is the embedded engine: nothing here knows a rule of its
own.
"""

from redrive.simulation.lives import Ending, Event, Kind, Life
from redrive.simulation.script import InvalidScript, Script, parse_script
from redrive.simulation.simulate import UnknownQueue, Unreachable, simulate
from redrive.simulation.stage import Entrance
from redrive.simulation.telling import as_json, tell

__all__ = [
    "Ending",
    "Entrance",
    "Event",
    "InvalidScript",
    "Kind",
    "Life",
    "Script",
    "UnknownQueue",
    "Unreachable",
    "as_json",
    "parse_script",
    "simulate",
    "tell",
]
