"""The headers that Redrive reads and writes, and the broker's own that a copy must not carry.

The names in the first block come from the documented systems; the others of ours begin with `x-redrive-`.
"""

from typing import Any

RETRY_COUNT = "x-retry-count"
ORIGINAL_QUEUE = "x-original-queue"
ORIGINAL_EXCHANGE = "x-original-exchange"
ORIGINAL_ROUTING_KEY = "x-original-routing-key"
FINAL_ERROR = "x-final-error"
FINAL_STATUS_CODE = "x-final-status-code"
FINAL_RETRY_COUNT = "x-final-retry-count"
REDRIVEN_ID = "x-redriven-id"
"""The id of the dead letter that was redriven: recognises it if it is dead-lettered again."""
REDRIVEN_COUNT = "x-redriven-count"
"""Which of its redrives the copy is, from 1."""
REDRIVEN_MARK = "x-redriven-mark"
"""Proves the id: nobody can make one without having seen it, and on another message it proves nothing."""
REDRIVEN_AT = "x-redriven-at"
"""When it was redriven: ISO 8601, UTC."""
REDRIVEN_BY = "x-redriven-by"
"""Who redrove it."""

NOT_BEFORE = "x-redrive-not-before"
"""Milliseconds since 1970: a copy delivered before then waits again; it is neither run nor counted."""
ATTEMPTS_BEFORE = "x-redrive-attempts-before"
"""Retries done before this copy was made, where the broker's own count starts afresh with it; added to every count."""
DELIVERIES = "x-redrive-deliveries"
"""How often a consumer crashed while it handled the message, on queues that do not count it themselves."""
DEATHS_ALONE = "x-redrive-deaths-alone"
"""The crash weight: what the crashes in the message's exclusive runs add up to; see `redrive.runtime.admission`."""
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
"""Milliseconds since 1970 when a consumer first received it; the age of a message without timestamp."""
POSSIBLE_DUPLICATE = "x-redrive-possible-duplicate"
"""True on a copy that was sent although an earlier one may have arrived."""
ENVELOPE = "x-redrive-envelope"
"""1 on a parked message whose body is an envelope: the whole message, because a copy's headers had no room."""
DIGEST = "x-redrive-digest"
"""Binds the headers of a copy to its queue and its message (`message_digest`); without it none of ours is believed."""

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
"""What a redriven copy does not carry: its attempts start afresh."""

ROUTING_HEADERS = frozenset({"CC", "BCC"})
"""These would route a copy to further queues."""

COUNT_HEADERS = frozenset({DELIVERY_COUNT, "x-acquired-count"})
"""The broker's counts for the queue the message was in."""

ORIGIN_HEADERS = frozenset({ORIGINAL_QUEUE, ORIGINAL_EXCHANGE, ORIGINAL_ROUTING_KEY})

BOUND_HEADERS = LIFE_HEADERS | ORIGIN_HEADERS | {MESSAGE_ID, STRIPPED, POSSIBLE_DUPLICATE, ENVELOPE, DIGEST}
"""What we write on copies: believed only on a message whose `x-redrive-digest` fits."""

DOCUMENTED_HEADERS = frozenset({RETRY_COUNT, ORIGINAL_EXCHANGE, ORIGINAL_ROUTING_KEY})
"""Those of them that FreeFlow's own consumers write on a retry, without a digest."""

REDRIVEN_HEADERS = frozenset({REDRIVEN_ID, REDRIVEN_COUNT, REDRIVEN_MARK, REDRIVEN_AT, REDRIVEN_BY})

_PREFIXES = ("x-redrive-", "x-redriven-")


def describes_one_message(name: str) -> bool:
    """Whether a header, ours or the broker's, describes the life of one message; a new message has none of them."""
    return name.startswith(_PREFIXES) or name in BOUND_HEADERS or name in DEATH_HEADERS or name in COUNT_HEADERS


COUNT_MAX = 1_000_000_000
"""A larger number in a header is a mistake and is read as this."""


def read_count(value: Any) -> int:
    """The count in a header: whole, not negative, at most `COUNT_MAX`. Anybody may have written it, so what is no whole
    number is 0; a text of digits is a number, because clients in other languages write counts as text."""
    if value is None:
        return 0
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return 0
    return min(value, COUNT_MAX)
