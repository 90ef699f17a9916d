"""Who may do what: roles, and tokens as values. A token's text is `rd_<id>_<secret>`; only the secret's hash is kept.

The secret is 160 random bits, so a plain SHA-256 of it can't be turned back, and looking one up needs no slow hash.
"""

import hashlib
import hmac
import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from redrive.core import RedriveError
from redrive.records.body_paths import matches_glob
from redrive.records.explanations.queue_names import guess_failed_queue
from redrive.records.ids import ID_LENGTH

SECRET_BYTES = 20
NAME_CHARACTERS_MAX = 100
QUEUES_MAX = 50
MOMENT_MS_MAX = 253_402_300_800_000
"""The year 10000."""
RESERVED_NAMES = frozenset(
    {
        "api", "anonymous", "auto-retry", "auto retry", "auto_retry:", "cli", "collector", "local", "nobody", "redrive",
        "redrive serve", "redriver", "retention", "serve", "system", "unknown", "witness", "worker",
    }
)  # fmt: skip
"""What the audit says of Redrive itself, and what would be taken for it."""
RESERVED_BEGINNINGS = ("address ", "cli:", "redrive ", "token ")
AS_TOLD_BY = ", as told by "
"""Between a name that somebody said and the name of their token."""
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SECRET_LENGTH = SECRET_BYTES * 8 // 5
_TEXT = re.compile(f"rd_([{_ALPHABET}]{{{ID_LENGTH}}})_([{_ALPHABET}]{{{_SECRET_LENGTH}}})")


# Unicode's Default_Ignorable_Code_Point, and the braille pattern without dots.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_LOOK_ALIKE = str.maketrans(
    "авекмнорстухіјѕԁһӏԛԝґ" + "αβεζηικμνορτυχγ" + "ıɑɡ",
    "abekmhopctyxijsdhlqwr" + "abezhikmnoptyxy" + "iag",
)
_TOGETHER = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
"""Scripts that are written with each other and with Latin letters, and look like no other."""


class InvalidToken(RedriveError):
    """A token that can't be made; the text says why."""


class Role(StrEnum):
    """What somebody may do. Each may also do what those before it may."""

    VIEWER = "viewer"
    """Looks, without payloads unless they are granted."""
    OPERATOR = "operator"
    """Sends back, resolves, edits, deletes."""
    ADMIN = "admin"
    """Tokens, redactions, and the broker's queues themselves."""

    def includes(self, needed: "Role") -> bool:
        """Whether this role may do what the needed one may."""
        return _RANKS[self] >= _RANKS[needed]


_RANKS = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token, without its secret. `queues` are names with `*`; none means every queue."""

    id: str
    name: str
    """Who it is, for the audit."""
    role: Role
    queues: tuple[str, ...] = ()
    sees_payloads: bool = False
    """A grant for viewers; the other roles see payloads anyway."""
    created_at_ms: int
    created_by: str
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None

    def is_valid(self, now_ms: int) -> bool:
        """Neither revoked nor expired."""
        return self.revoked_at_ms is None and (self.expires_at_ms is None or now_ms < self.expires_at_ms)

    @property
    def shows_payloads(self) -> bool:
        """Whether its owner sees payloads, by grant or by role."""
        return self.sees_payloads or self.role.includes(Role.OPERATOR)

    def state(self, now_ms: int) -> Literal["valid", "expired", "revoked"]:
        """The same in a word."""
        if self.revoked_at_ms is not None:
            return "revoked"
        return "valid" if self.is_valid(now_ms) else "expired"


RedactionKind: TypeAlias = Literal["body", "header"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """A value that a role does not see, nor the roles below it: at a path in JSON bodies, or of a header."""

    id: str
    kind: RedactionKind
    path: str
    """As filters write it, after `body.` or `header.`: `customer.card`, `items.*.price`, `x-user`."""
    hidden_from: Role


def mint_token(token_id: str, secret: bytes) -> tuple[str, bytes]:
    """What its owner is shown, once, and the hash to be kept. `secret`: `SECRET_BYTES` random ones."""
    number = int.from_bytes(secret, "big")
    characters = "".join([_ALPHABET[number >> 5 * place & 31] for place in range(_SECRET_LENGTH - 1, -1, -1)])
    return f"rd_{token_id}_{characters}", _hash(characters)


def clean_name(name: str) -> str:
    """A token's name as it is kept: NFKC, so that what looks alike is alike, and single spaces."""
    return " ".join(unicodedata.normalize("NFKC", name).split())


def fold_name(name: str) -> str:
    """What two names must not share: the same without case, without what nobody sees, and with Latin letters for the
    Cyrillic and Greek ones that look like them, as large or as small letters."""
    seen = "".join([one for one in clean_name(name) if _is_visible(one)])
    return clean_name(clean_name(seen).casefold()).translate(_LOOK_ALIKE)


def _is_visible(character: str) -> bool:
    return unicodedata.category(character) != "Cf" and _INVISIBLE.match(character) is None


def _scripts(name: str) -> set[str]:
    """The scripts of its letters, as their names in Unicode begin, but those that may stand beside others."""
    letters = [one for one in name if unicodedata.category(one) in ("Lu", "Ll", "Lt", "Lo")]
    found = {unicodedata.name(one, "UNKNOWN").partition(" ")[0] for one in letters}
    return {one.capitalize() for one in found - _TOGETHER}


def check_token(token: Token, *, now_ms: int) -> Token:
    """The token, if it can be made. Raises `InvalidToken`."""
    if (
        not any(unicodedata.category(one)[0] in "LNPS" for one in fold_name(token.name))
        or len(token.name) > NAME_CHARACTERS_MAX
        or not token.name.isprintable()
    ):
        raise InvalidToken(f"a token's name has 1 to {NAME_CHARACTERS_MAX} visible characters: it is who, in the audit")
    if token.name != clean_name(token.name):
        raise InvalidToken(f"a token's name is written in plain characters (NFKC), like {clean_name(token.name)!r}")
    if any(not _is_visible(one) for one in token.name):
        raise InvalidToken("a token's name has no characters that nobody sees: two names must not look the same")
    scripts = sorted(_scripts(token.name))
    if len(scripts) > 1:
        raise InvalidToken(f"a token's name has letters of one script; {' and '.join(scripts)} could look like another")
    folded = fold_name(token.name)
    if folded in RESERVED_NAMES or folded.startswith(RESERVED_BEGINNINGS) or AS_TOLD_BY in f"{folded} ":
        raise InvalidToken(
            f"{token.name!r} can't be a token's name: the audit would take it for Redrive itself; choose whose it is"
        )
    if len(token.queues) > QUEUES_MAX:
        raise InvalidToken(f"a token is limited to at most {QUEUES_MAX} names of queues; use * in a name")
    for queue in token.queues:
        if not queue or not _is_unicode(queue) or len(queue.encode()) > 255:
            raise InvalidToken("a queue's name has 1 to 255 bytes; * stands for anything")
    if token.expires_at_ms is not None and not now_ms < token.expires_at_ms < MOMENT_MS_MAX:
        raise InvalidToken("a token expires in the future; say how long it is to count, like 90d")
    return token


def read_token_text(text: str) -> tuple[str, bytes] | None:
    """The id and the secret's hash; None where it is no token."""
    found = _TEXT.fullmatch(text)
    return None if found is None else (found[1], _hash(found[2]))


def is_same_secret(one: bytes, other: bytes) -> bool:
    """Whether two hashes are equal, in a time that tells nothing about them."""
    return hmac.compare_digest(one, other)


def covers(queues: tuple[str, ...], *names: str) -> bool:
    """Whether a token for these queues may touch something of one of the names."""
    return not queues or any(matches_glob(pattern, name) for pattern in queues for name in names)


def covers_all(queues: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether a token for `queues` may touch everything that a token for `others` may. A `*` in `others` is compared
    like any character: a pattern of ours that matches it matches every name it stands for."""
    return not queues or (bool(others) and all(covers(queues, one) for one in others))


def may_send(queues: tuple[str, ...], *, dlq: str, exchange: str, routing_key: str) -> bool:
    """Whether a token for these queues may send a dead letter of `dlq` there: to a queue of theirs by its name, or to
    the one whose DLQ it is. Behind an exchange may be any queue."""
    if not queues:
        return True
    if exchange:
        return False
    return covers(queues, routing_key) or (covers(queues, dlq) and routing_key == guess_failed_queue(dlq))


def _is_unicode(text: str) -> bool:
    """Whether it can be written: half a surrogate pair, which JSON can say, can't."""
    return not any("\ud800" <= one <= "\udfff" for one in text)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
