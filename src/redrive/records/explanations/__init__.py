"""What a dead letter's headers tell, whoever parked it.

`header_values` reads what may be anything; `tellers` know the headers of each framework, `deaths` the broker's own,
`queue_names` what a DLQ's name says; `stacks` and `normalising` find what letters of one kind have in common,
`error_codes` keeps them apart where a number does; `grouping` makes a group of it, and `explaining` asks them all.
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
