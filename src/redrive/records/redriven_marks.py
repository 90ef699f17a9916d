"""The mark of a redriven copy: it proves that a message which died again is the copy that we sent.

`x-redriven-id` and `x-redriven-count` are headers like others: anybody can write them, and a handler that publishes
with `headers=message.headers` copies them. So a copy also carries a mark, `<operation>.<digest>`. The digest is made
with a secret of the operation that never leaves the database, of all that must be right: the vhost, the dead letter,
which of its redrives, the message's own id and its body. A mark on another message proves nothing, and who has not seen
a mark can't make one.
"""

import hmac
from hashlib import blake2b

from redrive.records.ids import ID_LENGTH

MARK_SECRET_BYTES = 32
_DIGEST_BYTES = 16
_MARK_LENGTH = ID_LENGTH + 1 + 2 * _DIGEST_BYTES


def make_mark(
    secret: bytes, *, operation_id: str, vhost: str, letter_id: str, count: int, message_id: str, body: bytes
) -> str:
    """The mark of one copy. `message_id` is the message's own, or else its `x-redrive-id`."""
    digest = blake2b(key=secret, digest_size=_DIGEST_BYTES)
    for part in (operation_id, vhost, letter_id, str(count), message_id):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    digest.update(body)
    return f"{operation_id}.{digest.hexdigest()}"


def marking_operation(mark: object) -> str | None:
    """The operation that a header's value names if it has the form of a mark; None otherwise."""
    if not isinstance(mark, str) or len(mark) != _MARK_LENGTH or mark[ID_LENGTH] != "." or not mark.isascii():
        return None
    return mark[:ID_LENGTH]


def is_same_mark(one: str, other: str) -> bool:
    """Whether two marks are equal, in a time that tells nothing about them."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
