"""What can go wrong between a client and the broker: the words for it."""

from dataclasses import dataclass
from enum import Enum


class Action(Enum):
    """What a fault does."""

    CLOSE_BEFORE = "cut before it"
    """The connection is cut before the frame is looked at: it never arrived."""
    CLOSE_AFTER = "cut after it"
    """The connection is cut after the frame took effect and before anything is answered."""
    DELAY = "delayed"
    """A frame, and all that comes after it from that client, is looked at later; or a confirm is sent later."""
    BLOCK = "publishers blocked"
    """Publishers are blocked for a while, beginning with this frame."""
    RESTART = "restarted after it"
    """The broker restarts after the frame took effect and before anything is answered."""
    LOSE = "lost"
    """A confirm is not sent; the message is where it should be."""
    NACK = "made a refusal"
    """A confirm becomes a refusal; the message is where it should be all the same."""


@dataclass(frozen=True, slots=True)
class Firing:
    """A fault at its moment; `for_ms` says how long, where that has a meaning."""

    action: Action
    for_ms: int = 0
