"""What this machine provides: its clock, random bits for ids and secrets, and a name for this process."""

import os
import secrets
import socket
import time

from redrive.records import ID_RANDOM_BITS, SECRET_BYTES, make_id


def now_ms() -> int:
    """This machine's clock, in milliseconds since 1970. What is kept in a store goes by `Store.clock_ms`."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A new id, of now."""
    return make_id(now_ms(), new_random_bits())


def new_secret() -> bytes:
    """Random bytes for a token."""
    return secrets.token_bytes(SECRET_BYTES)


def owner_name() -> str:
    """This process among all that share a database."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def new_random_bits() -> int:
    """Random bits for an id."""
    return secrets.randbits(ID_RANDOM_BITS)
