"""What a consumer sees of a message's past: `redelivered`, x-delivery-count and x-acquired-count.

Each version has its own way (see `profiles`), and only quorum queues show counters. A client's own header of that name
goes out as it came in until the queue has something to say itself.
"""

from typing import Any

from redrive import wire
from redrive.embedded.engine.messages import Entry
from redrive.embedded.engine.profiles import Profile


def presented(entry: Entry, profile: Profile, *, quorum: bool, fetched: bool) -> tuple[bool, bytes]:
    """`redelivered` and the content header; `fetched`: to basic.get."""
    message = entry.message
    if not quorum:
        return entry.redelivered or (profile.carries_everything and message.failed > 0), message.header
    headers: dict[str, Any] = {}
    if profile.shows_acquired:
        acquired, failed = entry.acquired or message.acquired, entry.failed
        if failed:
            headers["x-delivery-count"] = wire.Int64(failed)
        if acquired:
            headers["x-acquired-count"] = wire.Int64(acquired)
        redelivered = bool(headers)
    else:
        count = entry.acquired or message.failed
        redelivered = count > 0
        if redelivered or (fetched and profile.shows_zero_count):
            headers["x-delivery-count"] = wire.Int64(count)
    if not headers:
        return redelivered, message.header
    return redelivered, wire.sort_headers(wire.Properties(message.header).edit(headers=headers).raw, once=False)
