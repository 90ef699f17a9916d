"""The audit: its entries, and the chain they make. Each entry has a hash over itself and the hash of the one before it.

To change, remove, add or move an entry breaks the chain from there on. Somebody who can write the whole database could
make a new chain: a head that was exported before (`PLACE:HASH`) tells the new one from the old one, and shows that the
newest entries are gone.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redrive.core import RedriveError

GENESIS = bytes(32)
"""What the first entry follows."""
FINDINGS_MAX = 100
_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


class InvalidHead(RedriveError):
    """A text that is no head of a chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who did what to which messages, when, why. Entries are never changed."""

    at_ms: int
    who: str
    action: str
    """`redrive.created`, `letters.resolved`, `letters.deleted`, `group.acknowledged`, `letter.edited` …"""
    subject: str
    """An id, a filter, a queue: to what."""
    count: int
    why: str
    detail: dict[str, Any] = field(default_factory=dict)
    token_id: str = ""
    """Whose deed it was, which nobody can choose: a token's id, `local` without tokens, `cli:` and a login for a
    command on the database; "" for what Redrive did by itself."""
    place: int | None = None
    """Its number in the chain, from 1; None: not written yet, or outside of the chain."""
    hash: bytes | None = field(default=None, repr=False)
    """Of this entry and the one before it (`chain_hash`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    """The last entry of a chain: its number, and its hash."""

    place: int = 0
    hash: bytes = GENESIS

    def __str__(self) -> str:
        return f"{self.place}:{self.hash.hex()}"


def read_head(text: str) -> ChainHead:
    """What `str` of a head wrote. Raises `InvalidHead`."""
    found = _HEAD.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidHead(f"{text[:40]!r} is no head of an audit; it looks like 412:9f86d0… (redrive audit verify)")
    return ChainHead(place=int(found[1]), hash=bytes.fromhex(found[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """An entry as it is stored: what is hashed is the stored text, not a reading of it."""

    seq: int
    """In which order entries are listed."""
    place: int | None
    hash: bytes | None
    at_ms: int
    who: str
    token_id: str
    action: str
    subject: str
    count: int
    why: str
    detail: str
    """JSON, as it was written."""


def chain_hash(before: bytes, row: AuditRow) -> bytes:
    """The hash of an entry that follows one with the hash `before`. `seq` and `hash` are not asked."""
    texts = [row.who, row.token_id, row.action, row.subject, row.why, row.detail]
    said = json.dumps([row.place, row.at_ms, row.count, *texts], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(before + said.encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFinding:
    """Something that is wrong with a chain. `place`: of the entry; None where it has none."""

    code: str
    """`changed`, `missing`, `moved`, `unchained`, `truncated`, `rewritten`."""
    place: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReport:
    """What a look at a whole chain has found."""

    entries: int
    head: ChainHead
    """The last entry as it is now."""
    findings: tuple[ChainFinding, ...]
    is_cut: bool = False
    """There are more findings than are listed."""


class ChainCheck:
    """Looks at the entries of an audit in their order, `anchors` being heads that were true once."""

    def __init__(self, anchors: Sequence[ChainHead] = ()) -> None:
        self._anchors = {one.place: one.hash for one in anchors if one.place > 0}
        self._last = ChainHead()
        self._entries = 0
        self._findings: list[ChainFinding] = []
        self._is_cut = False

    def see(self, row: AuditRow) -> None:
        """The next entry, by `seq`."""
        self._entries += 1
        if row.place is None or row.hash is None:
            text = f"the entry {row.seq} of {row.who} is outside of the chain: nobody can tell who wrote it"
            self._found("unchained", None, text)
            return
        following = self._last.place + 1
        if row.place < following:
            self._found("moved", row.place, f"entry {row.place} comes after entry {self._last.place}: it was moved")
            return
        if row.place > following:
            many = (
                f"entries {following} to {row.place - 1} are" if row.place > following + 1 else f"entry {following} is"
            )
            self._found("missing", following, f"{many} missing")
        elif chain_hash(self._last.hash, row) != row.hash:
            text = f"entry {row.place} does not fit: it, or the hash of the one before it, was changed"
            self._found("changed", row.place, text)
        anchor = self._anchors.pop(row.place, None)
        if anchor is not None and anchor != row.hash:
            text = f"entry {row.place} is another than when its hash was exported: the chain was written anew"
            self._found("rewritten", row.place, text)
        self._last = ChainHead(place=row.place, hash=row.hash)

    def report(self, kept: ChainHead) -> ChainReport:
        """All of it, once every entry was seen. `kept`: the head as the database keeps it."""
        known = max([kept.place, *self._anchors])
        if known > self._last.place:
            count = known - self._last.place
            text = f"the last {count:,} {'entry is' if count == 1 else 'entries are'} missing: there were {known:,}"
            self._found("truncated", self._last.place + 1, text)
        elif kept != self._last:
            self._found("changed", self._last.place, "the head that the database keeps is not that of the last entry")
        return ChainReport(entries=self._entries, head=self._last, findings=tuple(self._findings), is_cut=self._is_cut)

    def _found(self, code: str, place: int | None, text: str) -> None:
        if len(self._findings) >= FINDINGS_MAX:
            self._is_cut = True
        else:
            self._findings.append(ChainFinding(code=code, place=place, text=text))
