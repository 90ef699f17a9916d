"""Dead letters as values: what is known about one, its states, groups, filters, operations. Pure, like `core`."""

from redrive.records.body_paths import certain_words, header_texts, matches_body, matches_glob, matches_header, words_of
from redrive.records.filter_grammar import parse_filter
from redrive.records.filter_problems import FilterProblem, InvalidFilter
from redrive.records.filter_writing import format_filter
from redrive.records.filters import (
    Between,
    BodyPath,
    ErrorLike,
    Filter,
    HeaderIs,
    Marked,
    Named,
    Numbered,
    Term,
    Words,
)
from redrive.records.groups import Group, Note
from redrive.records.identities import ID_LENGTH, LUCK_BITS, make_id
from redrive.records.letters import Arrival, Content, DeadLetter, Explanation, Happening
from redrive.records.operations import (
    AuditEntry,
    Claimed,
    Item,
    ItemState,
    NewOperation,
    Operation,
    OperationKind,
    OperationState,
    Preview,
    RetryRule,
    Selection,
    Sent,
    Target,
)
from redrive.records.search_text import BODY_BYTES_MAX, search_text
from redrive.records.states import TRANSITIONS, Event, GroupState, Status, sources
from redrive.records.understanding import STACK_HEADERS, explain, guess_failed_queue, normalise_message

__all__ = [
    "BODY_BYTES_MAX",
    "ID_LENGTH",
    "LUCK_BITS",
    "STACK_HEADERS",
    "TRANSITIONS",
    "Arrival",
    "AuditEntry",
    "Between",
    "BodyPath",
    "Claimed",
    "Content",
    "DeadLetter",
    "ErrorLike",
    "Event",
    "Explanation",
    "Filter",
    "FilterProblem",
    "Group",
    "GroupState",
    "Happening",
    "HeaderIs",
    "InvalidFilter",
    "Item",
    "ItemState",
    "Marked",
    "Named",
    "NewOperation",
    "Note",
    "Numbered",
    "Operation",
    "OperationKind",
    "OperationState",
    "Preview",
    "RetryRule",
    "Selection",
    "Sent",
    "Status",
    "Target",
    "Term",
    "Words",
    "certain_words",
    "explain",
    "format_filter",
    "guess_failed_queue",
    "header_texts",
    "make_id",
    "matches_body",
    "matches_glob",
    "matches_header",
    "normalise_message",
    "parse_filter",
    "search_text",
    "sources",
    "words_of",
]
