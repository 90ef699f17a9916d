"""Version 3: whether a copy of a dead letter is on its way is found by its number (`operation_rows.BEING_SENT`)."""

from redrive.stores.schema.dialect import Dialect


def statements(dialect: Dialect) -> tuple[str, ...]:
    """The same in both dialects."""
    return ("CREATE INDEX items_letters_sending ON items (letter_seq) WHERE state = 'sending'",)
