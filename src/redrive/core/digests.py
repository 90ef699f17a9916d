"""A digest that binds the headers of a copy to one queue and one message.

Handlers and clients copy a message's headers to new messages, and the broker passes on whatever it gets, its own
x-death included. A count, a time or an origin that was copied so describes another message. So every copy of ours
carries a digest of its queue and of what identifies the message: its id, its correlation id, its timestamp and its
body. If the digest does not fit, the other headers of ours are not believed.

It is no signature: anybody can compute it. It protects from accidents, not from attackers, who could publish anything
to the queue anyway. A message published again exactly as it is (same queue, id, properties, body, headers) can't be
told from the copy it repeats.
"""

from datetime import datetime
from hashlib import blake2b
from typing import Any

WHOLE_BYTES_MAX = 128 * 1024
"""Of a larger body only the length, the beginning and the end are read, so that a large copy costs no more."""


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
