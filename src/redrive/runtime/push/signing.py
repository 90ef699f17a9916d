"""Signatures: how a service knows that a request came from us, unchanged and not long ago. Pure.

    x-redrive-signature: t=1767268800,v1=5257a869e7…

`v1` is HMAC-SHA256, in hex, of the time as written, a full stop, and the body, under a secret both sides know. While
a secret is being changed there are two, and a `v1` for each: a service accepts if any of them is right.
"""

import hashlib
import hmac
from collections.abc import Sequence

SIGNATURE = "x-redrive-signature"


def sign(body: bytes, secrets: Sequence[bytes], *, now_s: int) -> str:
    """The header's value; one `v1` for each secret, in their order."""
    signed = b"%d." % now_s + body
    return ",".join([f"t={now_s}", *(f"v1={hmac.new(one, signed, hashlib.sha256).hexdigest()}" for one in secrets)])


def is_signed(header: str, body: bytes, secret: bytes, *, now_s: int, tolerance_s: int = 300) -> bool:
    """Whether a header is a signature of the body under the secret, not older or newer than the tolerance.

    For services in Python; others find the same in a few lines of their own language in the how-to.
    """
    parts = [part.partition("=") for part in header.split(",") if len(header) < 4096]
    times = [value for name, _, value in parts if name.strip() == "t"]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit()) or len(times[0]) > 15:
        return False
    if abs(now_s - int(times[0])) > tolerance_s:
        return False
    right = hmac.new(secret, times[0].encode() + b"." + body, hashlib.sha256).hexdigest()
    given = [value for name, _, value in parts if name.strip() == "v1"]
    return any([hmac.compare_digest(right.encode(), one.encode("ascii", "replace")) for one in given])  # noqa: C419
