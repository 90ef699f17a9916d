"""The states of a dead letter and of its group, and every way from one to another.

    from \\ event  claimed   confirmed refused  lost      came_back      silence   unconsumed consumed resolved  deleted
    pending       retrying  -         -        -         pending|failed -         -          -        resolved  (gone)
    failed        retrying  -         -        -         -              -         -          -        resolved  (gone)
    in_doubt      retrying  -         -        -         pending|failed -         -          -        resolved  (gone)
    retrying      -         retrying  pending  in_doubt  pending|failed resolved  waiting    -        resolved* (gone)*
    waiting       -         -         -        -         pending|failed resolved  waiting    retrying resolved* (gone)*
    resolved      -         -         -        -         pending|failed -         -          -        resolved  (gone)

A place with `-` is refused. `reopened` makes every status `pending`, except `pending` itself; `retrying` and `waiting`
only as *.

    claimed      the intent to send it is committed
    confirmed    the broker has the copy
    refused      the broker returned or nacked the copy, or it was certainly not sent
    lost         nobody can know whether the broker has the copy
    came_back    the copy died again and was collected; `failed` if its attempts are spent (`spent`). It happens to a
                 `pending` letter only if its copy was in doubt and somebody said that it had not arrived
    silence      the copy has not come back for the time T
    unconsumed   T is over, and the copy is seen to lie in its target queue, which nobody consumes
    consumed     the copy no longer lies there, and T begins again

*: only with `--end-waiting` (`ends_waiting`), and not while its copy is being sent. If that copy comes back, its letter
is `resolved` or `pending`; if its letter was deleted, it becomes a letter of its own.
"""

from enum import StrEnum


class Status(StrEnum):
    """Where a dead letter stands."""

    PENDING = "pending"
    RETRYING = "retrying"
    WAITING = "waiting"
    """Its copy lies in the queue it was sent to, and nobody takes it."""
    IN_DOUBT = "in_doubt"
    FAILED = "failed"
    RESOLVED = "resolved"


class LetterEvent(StrEnum):
    """What happens to a dead letter."""

    CLAIMED = "claimed"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    LOST = "lost"
    CAME_BACK = "came_back"
    SPENT = "spent"
    """It came back and its attempts are spent."""
    SILENCE = "silence"
    UNCONSUMED = "unconsumed"
    CONSUMED = "consumed"
    RESOLVED = "resolved"
    DELETED = "deleted"
    REOPENED = "reopened"


_P, _R, _W = Status.PENDING, Status.RETRYING, Status.WAITING
_D, _F, _X = Status.IN_DOUBT, Status.FAILED, Status.RESOLVED
IN_FLIGHT = (_R, _W)
"""A copy was sent, or is being sent, and has not come back."""

TRANSITIONS: dict[tuple[Status, LetterEvent], Status | None] = {
    (_P, LetterEvent.CLAIMED): _R,
    (_F, LetterEvent.CLAIMED): _R,
    (_D, LetterEvent.CLAIMED): _R,
    (_R, LetterEvent.CONFIRMED): _R,
    (_R, LetterEvent.REFUSED): _P,
    (_R, LetterEvent.LOST): _D,
    (_P, LetterEvent.CAME_BACK): _P,
    (_R, LetterEvent.CAME_BACK): _P,
    (_W, LetterEvent.CAME_BACK): _P,
    (_D, LetterEvent.CAME_BACK): _P,
    (_X, LetterEvent.CAME_BACK): _P,
    (_P, LetterEvent.SPENT): _F,
    (_R, LetterEvent.SPENT): _F,
    (_W, LetterEvent.SPENT): _F,
    (_D, LetterEvent.SPENT): _F,
    (_X, LetterEvent.SPENT): _F,
    (_R, LetterEvent.SILENCE): _X,
    (_W, LetterEvent.SILENCE): _X,
    (_R, LetterEvent.UNCONSUMED): _W,
    (_W, LetterEvent.UNCONSUMED): _W,
    (_W, LetterEvent.CONSUMED): _R,
    (_R, LetterEvent.RESOLVED): _X,
    (_W, LetterEvent.RESOLVED): _X,
    (_R, LetterEvent.DELETED): None,
    (_W, LetterEvent.DELETED): None,
    (_R, LetterEvent.REOPENED): _P,
    (_W, LetterEvent.REOPENED): _P,
    (_P, LetterEvent.RESOLVED): _X,
    (_F, LetterEvent.RESOLVED): _X,
    (_D, LetterEvent.RESOLVED): _X,
    (_X, LetterEvent.RESOLVED): _X,
    (_P, LetterEvent.DELETED): None,
    (_F, LetterEvent.DELETED): None,
    (_D, LetterEvent.DELETED): None,
    (_X, LetterEvent.DELETED): None,
    (_F, LetterEvent.REOPENED): _P,
    (_D, LetterEvent.REOPENED): _P,
    (_X, LetterEvent.REOPENED): _P,
}
"""The table above. None: the row is gone. A pair that is missing is refused."""


def statuses_allowing(event: LetterEvent) -> tuple[Status, ...]:
    """The states in which an event may happen."""
    return tuple(status for status, one in TRANSITIONS if one is event)


class GroupState(StrEnum):
    """What people said about a group. A resolved one that gets a new dead letter is `regressed`."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    IGNORED = "ignored"
    REGRESSED = "regressed"
