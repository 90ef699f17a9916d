"""The headers Redrive reads and writes, and the broker's own that must not travel with a copy.

Names in the first block come from the documented systems; what we need beyond them begins with `x-redrive-`.
"""

RETRY_COUNT = "x-retry-count"
ORIGINAL_QUEUE = "x-original-queue"
ORIGINAL_EXCHANGE = "x-original-exchange"
ORIGINAL_ROUTING_KEY = "x-original-routing-key"
FINAL_ERROR = "x-final-error"
FINAL_STATUS_CODE = "x-final-status-code"
FINAL_RETRY_COUNT = "x-final-retry-count"
REDRIVEN_ID = "x-redriven-id"
"""The dead letter a redriven copy was: how it is known again if it dies once more."""
REDRIVEN_COUNT = "x-redriven-count"
"""Which of its redrives the copy is, from 1."""
REDRIVEN_MARK = "x-redriven-mark"
"""What proves it: nobody can make one who has not seen it, and on another message it proves nothing."""
REDRIVEN_AT = "x-redriven-at"
"""When it was sent back: ISO 8601, UTC."""
REDRIVEN_BY = "x-redriven-by"
"""Who sent it back."""

NOT_BEFORE = "x-redrive-not-before"
"""Milliseconds since 1970: a copy delivered before then waits again, neither run nor counted."""
ATTEMPTS_BEFORE = "x-redrive-attempts-before"
"""Retries done before this copy was made, where the broker's own count starts afresh with it; added to every count."""
DELIVERIES = "x-redrive-deliveries"
"""How often a message was in the hands of a consumer that died, on queues that do not count it themselves."""
DEATHS_ALONE = "x-redrive-deaths-alone"
"""What weighs against a message whose consumers died when it was to run alone; see `redrive.runtime.admission`."""
STRIPPED = "x-redrive-stripped"
"""A table of the properties and headers that a copy could not keep."""
MESSAGE_ID = "x-redrive-id"
"""The identity of a message that has no message_id: the same for all its copies."""
REASON = "x-redrive-reason"
"""Why it was parked, as a word: `attempts`, `park`, `undecodable` and so on."""
STACK = "x-redrive-stack"
"""The top of the last error's stack."""
HISTORY = "x-redrive-history"
"""The attempts that are known, oldest first, bounded: a list of tables."""
PARKED_AT = "x-redrive-parked-at"
FIRST_SEEN = "x-redrive-first-seen"
"""Milliseconds since 1970 when a consumer first had it in hand; the age budget of a message without timestamp."""
POSSIBLE_DUPLICATE = "x-redrive-possible-duplicate"
"""True on a copy that was sent although an earlier one may have arrived."""
ENVELOPE = "x-redrive-envelope"
"""1 on a parked message whose body is an envelope: the message itself, properties and all, had no room for a copy's."""
DIGEST = "x-redrive-digest"
"""Binds what is written on a copy to its queue and its message (`core.digests`); without it nothing is believed."""

DEATHS = "x-death"
DELIVERY_COUNT = "x-delivery-count"

DEATH_HEADERS = frozenset(
    {
        DEATHS,
        "x-first-death-exchange",
        "x-first-death-queue",
        "x-first-death-reason",
        "x-last-death-exchange",
        "x-last-death-queue",
        "x-last-death-reason",
    }
)
"""Left on a parked copy as evidence; taken off a copy that is to live on, where 3.10 would go on counting in them and
its cycle detection would drop the message."""

LIFE_HEADERS = frozenset(
    {
        RETRY_COUNT,
        FINAL_ERROR,
        FINAL_STATUS_CODE,
        FINAL_RETRY_COUNT,
        REASON,
        STACK,
        HISTORY,
        PARKED_AT,
        NOT_BEFORE,
        DELIVERIES,
        DEATHS_ALONE,
        ATTEMPTS_BEFORE,
        FIRST_SEEN,
    }
)
"""How the life ended that a redriven copy leaves behind: its attempts start afresh."""

ROUTING_HEADERS = frozenset({"CC", "BCC"})
"""Would route a copy to further queues."""

COUNT_HEADERS = frozenset({DELIVERY_COUNT, "x-acquired-count"})
"""The broker's, about the queue the message was in."""

ORIGIN_HEADERS = frozenset({ORIGINAL_QUEUE, ORIGINAL_EXCHANGE, ORIGINAL_ROUTING_KEY})

BOUND_HEADERS = LIFE_HEADERS | ORIGIN_HEADERS | {MESSAGE_ID, STRIPPED, POSSIBLE_DUPLICATE, ENVELOPE, DIGEST}
"""What we write on copies: believed on a message only where its `x-redrive-digest` fits."""

DOCUMENTED_HEADERS = frozenset({RETRY_COUNT, ORIGINAL_EXCHANGE, ORIGINAL_ROUTING_KEY})
"""Those of them that FreeFlow's own consumers write on a retry, without a digest."""

REDRIVEN_HEADERS = frozenset({REDRIVEN_ID, REDRIVEN_COUNT, REDRIVEN_MARK, REDRIVEN_AT, REDRIVEN_BY})

_PREFIXES = ("x-redrive-", "x-redriven-")


def is_of_a_life(name: str) -> bool:
    """Whether a header tells of the life of one message, ours or the broker's: none that a new message begins with."""
    return name.startswith(_PREFIXES) or name in BOUND_HEADERS or name in DEATH_HEADERS or name in COUNT_HEADERS
