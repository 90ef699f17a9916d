"""Everything in which the embedded broker may differ from the real one, in one place; the differential test forgives
nothing else.

1. Times are masked: x-death's `time` is virtual on one side and real on the other.
2. Names that a broker makes up (consumer tags, amq.gen-…) are masked.
3. Order of headers: a table is compared as a mapping.
4. A sequence in which the real broker's answers came so late that a deadline may have passed between them is played
   again with fewer neighbours; where it still is, or where the real broker does not repeat its own answers, nothing is
   compared. A tenth of the sequences at most.
5. Error texts that Erlang wraps over several lines (numbers beyond 64 bits) are not generated.
6. What several queues do at once races on a real broker, so it is not generated: messages of several queues settled
   with one frame, a fan-out to queues that overflow into one another.
7. 4.0: priorities and deadlines don't occur in one sequence. Its quorum queues let every third read prefer low
   priorities, and how messages that expire count as reads is not known.
8. 3.10 can move a message round full queues for ever when it was once rejected (its x-death hides the circle); the
   embedded broker drops it after 1,000 rounds at one moment.
9. x-death entries that are no tables, sent by a client to 3.10, crash its queue process; they are not generated.
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
