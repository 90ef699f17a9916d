"""Whose headers they are: a digest that binds what is written on a copy to one queue and one message.

Handlers and clients copy a message's headers to new messages, and the broker passes on whatever it is given, its own
x-death included. A count, a time or an origin that travelled so tells of another message's past. So every copy of ours
carries a digest of the queue it belongs to and of what makes the message itself: its id, its correlation id, its
timestamp and its body. Where that does not fit, the other headers of ours are not believed.

It is no signature: whoever wants to can compute it. It keeps accidents apart, not attackers, who could publish whatever
they like to the queue anyway. A message published again exactly as it is (same queue, id, properties, body, headers)
can't be told from the copy it repeats.
"""

from datetime import datetime
from hashlib import blake2b
from typing import Any

WHOLE_BYTES_MAX = 128 * 1024
"""Of a larger body its length, its beginning and its end are read: a copy must not cost more the larger it is."""


def message_digest(queue: str, *, message_id: Any, correlation_id: Any, timestamp: Any, body: bytes) -> str:
    """The digest of a message in a queue; `message_id` is its property, or the id we gave it."""
    moment = int(timestamp.timestamp()) if isinstance(timestamp, datetime) else timestamp
    made = blake2b(digest_size=16)
    for part in (queue, message_id, correlation_id, moment):
        raw = b"" if part is None else str(part).encode("utf-8", "surrogateescape")
        made.update(b"%d:" % (-1 if part is None else len(raw)))
        made.update(raw)
    made.update(b"%d:" % len(body))
    if len(body) <= WHOLE_BYTES_MAX:
        made.update(body)
    else:
        made.update(memoryview(body)[: WHOLE_BYTES_MAX // 2])
        made.update(memoryview(body)[-WHOLE_BYTES_MAX // 2 :])
    return made.hexdigest()
