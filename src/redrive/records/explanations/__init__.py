"""Reads from a dead letter's headers why it failed, whichever framework wrote them.

`explanation` puts it together. `framework_headers` reads the headers of each framework, `x_death` those of the broker,
`header_values` single values, which may be anything; `queue_names` reads the name of a DLQ. `stack_traces` and
`error_templates` find what letters of one kind have in common, `error_codes` what keeps them apart; `group_ids` makes
a group of it.
"""

from redrive.records.explanations.error_templates import normalise_message
from redrive.records.explanations.explanation import explain, group_of, with_failed_queue
from redrive.records.explanations.queue_names import guess_failed_queue, owner_of
from redrive.records.explanations.stack_traces import STACK_HEADERS, top_lines

__all__ = [
    "STACK_HEADERS",
    "explain",
    "group_of",
    "guess_failed_queue",
    "normalise_message",
    "owner_of",
    "top_lines",
    "with_failed_queue",
]
