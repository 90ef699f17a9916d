"""Every field of a dead letter is read, inserted and, where headers tell it, overwritten by a recurrence."""

from dataclasses import fields

from redrive.records import DeadLetter, Explanation
from redrive.stores import Store
from redrive.stores.letters.letter_columns import EXPLAINED, INSERTED, ORIGIN, OVERWRITTEN, SELECTED, STATE, new_state
from tests.unit.stores.arrivals import database_of
from tests.unit.stores.conftest import Run

FIELDS = [field.name for field in fields(DeadLetter)]


def test_the_columns_of_a_row_are_the_fields_of_a_dead_letter() -> None:
    kept_elsewhere, of_the_row_alone = {"stack", "group_id"}, {"seq", "group_seq", "error_folded"}
    assert set(INSERTED) - of_the_row_alone == set(FIELDS) - kept_elsewhere
    assert len(INSERTED) == len(set(INSERTED))
    assert SELECTED.count(" l.") >= len(FIELDS) - len(kept_elsewhere)


def test_what_headers_tell_is_overwritten_and_what_happened_since_is_state() -> None:
    told = {field.name for field in fields(Explanation)}
    assert set(EXPLAINED) == told & set(FIELDS) - {"stack", "group_id"}
    assert ORIGIN == ("vhost", "dlq", "dlq_exchange", "dlq_routing_key")
    assert not set(STATE) & set(OVERWRITTEN)
    assert {"redrives", "returns", "due_at_ms", "forgiven"} <= set(STATE)


def test_a_new_row_begins_with_zeros_and_nothing() -> None:
    begun = dict(zip(STATE, new_state(), strict=True))
    assert {name for name, value in begun.items() if value == 0} == {
        "redrives", "returns", "is_poison", "is_edited", "forgiven",
    }  # fmt: skip
    assert all(value is None or value == 0 for value in begun.values())


def test_the_table_has_these_columns_and_no_others(store: Store, run: Run) -> None:
    async def scenario() -> None:
        async with database_of(store).read() as tx:
            if tx.dialect.kind == "sqlite":
                rows = await tx.rows("SELECT name FROM pragma_table_info('letters')")
            else:
                rows = await tx.rows("SELECT column_name FROM information_schema.columns WHERE table_name = 'letters'")
        assert sorted(row[0] for row in rows) == sorted(INSERTED)

    run(scenario())
