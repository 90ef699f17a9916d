"""What people do to dead letters, besides redriving them. Each change needs a name, most a reason; bad requests are
refused in a sentence.

The store writes the audit entry in the same transaction as the change. Bookly's methods are here by name: `get_stats`,
`resolve_manually` and `remove`; `retry_manually` is in `RedriveService`.
"""

from collections.abc import Callable

from redrive.core import RedriveError
from redrive.deadletters.actions.edits import LetterEdit, edit_content
from redrive.records import IN_FLIGHT, DeadLetter, Filter, Group, GroupState, Selection, Status
from redrive.stores import ChangeResult, LetterPage, LetterStats, Store

NAME_CHARACTERS_MAX = 200
REASON_CHARACTERS_MAX = 2_000


class ActionRefused(RedriveError):
    """What was asked can't be done; the text says why. Nothing was changed."""


class RecordNotFound(ActionRefused):
    """The dead letter or group that was asked for does not exist."""


class DeadLetterService:
    """The dead letters of one store. `clock_ms` is the present, in milliseconds since 1970."""

    def __init__(self, store: Store, *, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock_ms = clock_ms

    async def resolve(
        self,
        selection: Selection,
        *,
        who: str,
        why: str,
        if_version: int | None = None,
        on_behalf_of: str | None = None,
    ) -> ChangeResult:
        """Marks dead letters as resolved. Those that are being sent are left alone, with the reason."""
        check_reason(who if on_behalf_of is None else on_behalf_of, why, needs_why=True)
        return await self._store.letters.resolve(
            selection, who=who, why=why, now_ms=self._clock_ms(), if_version=if_version, on_behalf_of=on_behalf_of
        )

    async def reopen(
        self, selection: Selection, *, who: str, why: str = "", if_version: int | None = None
    ) -> ChangeResult:
        """Makes failed, doubtful and resolved ones pending again."""
        check_reason(who, why)
        return await self._store.letters.reopen(
            selection, who=who, why=why, now_ms=self._clock_ms(), if_version=if_version
        )

    async def delete(
        self, selection: Selection, *, who: str, why: str = "", if_version: int | None = None
    ) -> ChangeResult:
        """Deletes dead letters for good; only the audit keeps a trace. Those that are being sent are left alone."""
        check_reason(who, why)
        return await self._store.letters.delete(
            selection, who=who, why=why, now_ms=self._clock_ms(), if_version=if_version
        )

    async def edit(
        self, letter_id: str, edit: LetterEdit, *, who: str, why: str, if_version: int | None = None
    ) -> DeadLetter:
        """Changes the body or headers that a redrive will send; the original and the difference are kept.

        Raises ActionRefused, InvalidEdit, VersionConflict.
        """
        check_reason(who, why, needs_why=True)
        letter = await self._letter(letter_id)
        if letter.status in IN_FLIGHT:
            raise ActionRefused(f"dead letter {letter_id} is on its way; edit it when it comes back")
        content = await self._store.letters.content(letter_id)
        if content is None:
            raise ActionRefused(f"the content of dead letter {letter_id} is gone")
        edited = edit_content(content, edit)
        # Without a version from the caller, the dead letter must still be what was read here.
        version = letter.version if if_version is None else if_version
        return await self._store.letters.edit(
            letter_id,
            edited.content,
            who=who,
            why=why,
            diff=edited.diff,
            if_version=version,
            now_ms=self._clock_ms(),
        )

    async def resolve_doubt(self, letter_id: str, *, arrived: bool, who: str, why: str) -> DeadLetter:
        """Decides an in-doubt letter by what a person found out: resolved if the copy arrived, else pending again."""
        check_reason(who, why, needs_why=True)
        letter = await self._letter(letter_id)
        if letter.status is not Status.IN_DOUBT:
            raise ActionRefused(f"dead letter {letter_id} is {letter.status}, not in doubt")
        selection = Selection(ids=(letter_id,))
        if arrived:
            changed = await self.resolve(selection, who=who, why=f"it arrived: {why}", if_version=letter.version)
        else:
            changed = await self.reopen(selection, who=who, why=f"it did not arrive: {why}", if_version=letter.version)
        _require(letter_id, changed)
        return await self._letter(letter_id)

    async def acknowledge_group(self, group_id: str, *, who: str, why: str = "") -> Group:
        """Somebody has seen the group and works on it."""
        return await self._set_group(group_id, GroupState.ACKNOWLEDGED, who, why)

    async def ignore_group(self, group_id: str, *, who: str, why: str) -> Group:
        """The group needs no attention."""
        check_reason(who, why, needs_why=True)
        return await self._set_group(group_id, GroupState.IGNORED, who, why)

    async def resolve_group(self, group_id: str, *, who: str, why: str) -> Group:
        """The cause is fixed; a new dead letter makes the group `regressed`. Its dead letters stay as they are."""
        check_reason(who, why, needs_why=True)
        return await self._set_group(group_id, GroupState.RESOLVED, who, why)

    async def reopen_group(self, group_id: str, *, who: str, why: str = "") -> Group:
        """Opens the group again."""
        return await self._set_group(group_id, GroupState.OPEN, who, why)

    async def add_note(self, group_id: str, text: str, *, who: str) -> Group:
        """Writes a note beside a group."""
        check_reason(who, text)
        if not text.strip():
            raise ActionRefused("the note is empty")
        await self._group(group_id)
        await self._store.groups.add_note(group_id, who=who, text=text, now_ms=self._clock_ms())
        return await self._group(group_id)

    async def get_stats(self, filter: Filter | None = None) -> LetterStats:
        """Bookly's `getStats`: how many by status, queue, topic, service, type, group."""
        return await self._store.stats.totals(filter, now_ms=self._clock_ms())

    async def resolve_manually(
        self, letter_id: str, who: str, resolution: str, *, on_behalf_of: str | None = None
    ) -> DeadLetter:
        """Bookly's `resolveManually`. `on_behalf_of`: the person whom the caller names, recorded beside the caller."""
        await self._letter(letter_id)
        changed = await self.resolve(Selection(ids=(letter_id,)), who=who, why=resolution, on_behalf_of=on_behalf_of)
        _require(letter_id, changed)
        return await self._letter(letter_id)

    async def remove(self, letter_id: str, *, who: str, why: str = "") -> None:
        """Bookly's `remove`."""
        await self._letter(letter_id)
        _require(letter_id, await self.delete(Selection(ids=(letter_id,)), who=who, why=why))

    async def list(
        self, filter: Filter, *, limit: int = 50, cursor: str | None = None, newest_first: bool = True
    ) -> LetterPage:
        """A page of the dead letters that match a filter."""
        if not 1 <= limit <= 1_000:
            raise ActionRefused(f"a page has 1 to 1000 dead letters, not {limit}")
        return await self._store.letters.page(
            filter, limit=limit, cursor=cursor, newest_first=newest_first, now_ms=self._clock_ms()
        )

    async def _letter(self, letter_id: str) -> DeadLetter:
        letter = await self._store.letters.get(letter_id)
        if letter is None:
            raise RecordNotFound(f"there is no dead letter {letter_id}")
        return letter

    async def _group(self, group_id: str) -> Group:
        group = await self._store.groups.get(group_id)
        if group is None:
            raise RecordNotFound(f"there is no group {group_id}")
        return group

    async def _set_group(self, group_id: str, state: GroupState, who: str, why: str) -> Group:
        check_reason(who, why)
        await self._group(group_id)
        await self._store.groups.set_state(group_id, state, who=who, why=why, now_ms=self._clock_ms())
        return await self._group(group_id)


def check_reason(who: str, why: str, *, needs_why: bool = False) -> None:
    """Raises ActionRefused without a name and, where it is needed, a reason."""
    if not who.strip():
        raise ActionRefused("say who you are: every change is kept with a name")
    if len(who) > NAME_CHARACTERS_MAX:
        raise ActionRefused(f"the name of who does it is longer than {NAME_CHARACTERS_MAX} characters")
    if needs_why and not why.strip():
        raise ActionRefused("say why: who looks at it later has only your reason")
    if len(why) > REASON_CHARACTERS_MAX:
        raise ActionRefused(f"the reason is longer than {REASON_CHARACTERS_MAX:,} characters")


def _require(letter_id: str, changed: ChangeResult) -> None:
    reason = changed.refused.get(letter_id)
    if reason is not None:
        raise ActionRefused(f"dead letter {letter_id}: {reason}")
