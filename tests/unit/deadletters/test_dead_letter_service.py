"""What people do to dead letters, on a real SQLite store: what changes, what is refused, and with which text."""

import pytest

from redrive.deadletters.actions.dead_letter_service import ActionRefused
from redrive.deadletters.actions.edits import InvalidEdit, LetterEdit
from redrive.records import (
    Filter,
    GroupState,
    ItemState,
    NameTerm,
    OperationState,
    Selection,
    Status,
)
from redrive.stores import VersionConflict
from redrive.wire import Properties
from tests.unit.deadletters.services_stage import Play, ServicesStage


def test_booklys_operations(play: Play) -> None:
    async def scenario(on: ServicesStage) -> None:
        first, second, third = on.ids
        assert (await on.letters.get_stats()).by_status == {"pending": 3}
        resolved = await on.letters.resolve_manually(first, "ann", "refunded by hand")
        assert (resolved.status, resolved.resolved_by) == (Status.RESOLVED, "ann")
        operation = await on.redrives.retry_manually(second, who="ann", why="the service is up again")
        assert (operation.state, operation.total, operation.who) == (OperationState.WAITING, 1, "ann")
        await on.letters.remove(third, who="ann")
        assert await on.store.letters.get(third) is None
        listed = await on.letters.list(Filter((NameTerm(field="status", values=("pending",)),)))
        assert [letter.id for letter in listed.letters] == [second]
        assert (await on.letters.get_stats()).by_status == {"pending": 1, "resolved": 1}
        assert await on.actions() == [
            ("ann", "letters.resolved", "refunded by hand"),
            ("ann", "redrive.created", "the service is up again"),
            ("ann", "letters.deleted", ""),
        ]

    play(scenario)


def test_what_is_on_its_way_is_neither_resolved_nor_removed_nor_edited(play: Play) -> None:
    async def scenario(on: ServicesStage) -> None:
        first = on.ids[0]
        await on.send(first, ItemState.SENT)
        with pytest.raises(ActionRefused, match="a copy may be on its way"):
            await on.letters.resolve_manually(first, "ann", "done")
        with pytest.raises(ActionRefused, match="a copy may be on its way"):
            await on.letters.remove(first, who="ann")
        with pytest.raises(ActionRefused, match="is on its way; edit it when it comes back"):
            await on.letters.edit(first, LetterEdit(body=b"x"), who="ann", why="typo")
        with pytest.raises(ActionRefused, match="nothing to send back: the matching dead letters can't be redriven"):
            await on.redrives.retry_manually(first, who="ann")
        assert await on.status(first) is Status.RETRYING

    play(scenario)


def test_a_doubt_is_settled_by_a_person(play: Play) -> None:
    async def scenario(on: ServicesStage) -> None:
        first, second, third = on.ids
        for one in (first, second):
            await on.send(one, ItemState.IN_DOUBT)
        arrived = await on.letters.resolve_doubt(first, arrived=True, who="ann", why="it is in the ledger")
        assert (arrived.status, arrived.status_reason) == (Status.RESOLVED, "it arrived: it is in the ledger")
        lost = await on.letters.resolve_doubt(second, arrived=False, who="ann", why="the ledger has no such entry")
        assert lost.status is Status.PENDING
        with pytest.raises(ActionRefused, match="is pending, not in doubt"):
            await on.letters.resolve_doubt(third, arrived=True, who="ann", why="?")

    play(scenario)


def test_an_edit_is_what_a_redrive_sends_and_its_difference_is_kept(play: Play) -> None:
    async def scenario(on: ServicesStage) -> None:
        first = on.ids[0]
        edited = await on.letters.edit(
            first, LetterEdit(body=b'{"n": 7}', set_headers={"tenant": "b"}), who="ann", why="wrong tenant"
        )
        assert edited.is_edited
        content = await on.store.letters.content(first)
        original = await on.store.letters.content(first, edited=False)
        assert content is not None
        assert original is not None
        assert (content.body, original.body) == (b'{"n": 7}', b'{"n": 0}')
        assert Properties(content.properties).headers == {"tenant": "b"}
        entry = (await on.store.audit.page(1))[0][0]
        assert (entry.action, entry.why) == ("letter.edited", "wrong tenant")
        assert '-{"n": 0}' in entry.detail["diff"]
        with pytest.raises(VersionConflict):
            await on.letters.edit(first, LetterEdit(body=b"x"), who="ann", why="again", if_version=edited.version - 1)
        with pytest.raises(InvalidEdit, match="changes nothing"):
            await on.letters.edit(first, LetterEdit(), who="ann", why="again")

    play(scenario)


def test_groups_are_acknowledged_ignored_resolved_and_noted(play: Play) -> None:
    async def scenario(on: ServicesStage) -> None:
        assert (await on.letters.acknowledge_group("group1", who="ann")).state is GroupState.ACKNOWLEDGED
        assert (await on.letters.ignore_group("group1", who="ann", why="known")).state is GroupState.IGNORED
        assert (await on.letters.resolve_group("group1", who="ann", why="mended")).state is GroupState.RESOLVED
        assert (await on.letters.reopen_group("group1", who="ann")).state is GroupState.OPEN
        noted = await on.letters.add_note("group1", "see the ticket", who="ann")
        assert [(note.who, note.text) for note in noted.notes] == [("ann", "see the ticket")]
        with pytest.raises(ActionRefused, match="there is no group nobody"):
            await on.letters.acknowledge_group("nobody", who="ann")
        with pytest.raises(ActionRefused, match="the note is empty"):
            await on.letters.add_note("group1", "  ", who="ann")

    play(scenario)


def test_a_selection_is_resolved_and_reopened_as_a_whole(play: Play) -> None:
    async def scenario(on: ServicesStage) -> None:
        everything = Selection(filter=Filter())
        assert (await on.letters.resolve(everything, who="ann", why="all refunded")).done == 3
        assert (await on.letters.reopen(everything, who="ann")).done == 3
        assert (await on.letters.delete(Selection(ids=(*on.ids[:2], "nobody")), who="ann")).refused.keys() == {"nobody"}
        assert [letter.id for letter in (await on.letters.list(Filter())).letters] == [on.ids[2]]

    play(scenario)


def test_a_resolution_needs_a_reason_and_unknown_letters_are_named(play: Play) -> None:
    async def scenario(on: ServicesStage) -> None:
        with pytest.raises(ActionRefused, match="say why"):
            await on.letters.resolve_manually(on.ids[0], "ann", " ")
        for call in (
            on.letters.resolve_manually("nobody", "ann", "x"),
            on.letters.remove("nobody", who="ann"),
            on.redrives.retry_manually("nobody", who="ann"),
        ):
            with pytest.raises(ActionRefused, match="there is no dead letter nobody"):
                await call
        with pytest.raises(ActionRefused, match="a page has 1 to 1000"):
            await on.letters.list(Filter(), limit=0)

    play(scenario)
