"""Everything in which the embedded broker may differ from the real one, in one place; the differential test forgives
nothing else.

1. Times are masked: x-death's `time` is virtual on one side and real on the other.
2. Names that a broker makes up (consumer tags, amq.gen-…) are masked.
3. Order of headers: a table is compared as a mapping.
4. A sequence in which the real broker's answers came so late that a deadline may have passed between them is played
   again with fewer neighbours; where it still is, or where the real broker does not repeat its own answers, nothing is
   compared. A tenth of the sequences at most.
5. Error texts that Erlang wraps over several lines (numbers beyond 64 bits) are not generated.
6. What several processes of a real broker do at once races there, so it is not generated: messages of several queues
   settled with one frame, a fan-out to queues that overflow into one another, two channels that end within 30 ms (a
   quorum queue hears of each from its process; 4.3, seeds 2013 and 2187 of an earlier generator, came out both ways),
   one channel that ends holding messages of several queues (each hears of it for itself; 3.10, seed 335 of an earlier
   player, gave the same order of their dead in all four plays, and which rule makes it is not known).
7. 4.3.6: no quorum queue has both a drop-head max-length and delayed retry. Delayed messages count towards the length
   but can't be dropped; when they alone exceed it, the queue looks for a head to drop for ever: its process takes a
   whole core and every call on it times out (541 after a minute). The embedded broker drops what is ready and goes on.
8. 3.10 can move a message round full queues for ever when it was once rejected (its x-death hides the circle); the
   embedded broker drops it after 1,000 rounds at one moment.
9. Under a channel-wide prefetch consumers of several queues are served in any order (3.10 and 4.0 draw lots among the
   queues): such consumers are of one queue. Streams' passive counts lag by seconds; on 3.10 and 4.0 a body longer than
   announced is waited on, not refused. None of these is generated.
10. x-death entries that are no tables, sent by a client to 3.10, crash its queue process; they are not generated.
"""

from datetime import datetime
from typing import Any


def masked(value: Any) -> Any:
    """A header table, comparable."""
    if isinstance(value, dict):
        return {key: masked(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [masked(each) for each in value]
    if isinstance(value, datetime):
        return "<time>"
    return value
