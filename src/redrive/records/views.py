"""What somebody sees of a message: without a grant no payload at all, with it all but what rules hide from the role.

A rule hides a value from a role and those below it: at a path in JSON bodies, or of a header. Where a rule can't be
applied because a body is no JSON, the whole body is hidden. An error's text may quote any value, in any
form. So a role with any hidden value sees no error texts: no messages, no stacks, no histories on copies, no titles of
groups. It still sees types and status codes. Nobody may search for a value that is hidden from them: a filter that
finds a message by a value has shown the value.
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from redrive.records.access import Redaction, Role
from redrive.records.filters.filter_problems import InvalidFilter
from redrive.records.filters.grammar import parse_filter
from redrive.records.filters.terms import BodyTerm, ErrorTerm, Filter, HeaderTerm, NameTerm, WordsTerm
from redrive.records.masking import (
    WORK_MAX,
    MaskingTooExpensive,
    has_error_text,
    hide_in_body,
    hide_in_headers,
    overlaps,
    path_of,
)
from redrive.records.states import LetterEvent

ENVELOPE = b"redrive envelope "
"""Begins a body that holds a whole message, headers and all: what a rule hides of those is in it."""
FILTER_READ_MAX = 1_000
HIDDEN_FILTER = "(a filter on payloads)"
_EVENTS_WITH_ERROR_TEXT = frozenset({str(LetterEvent.CAME_BACK), str(LetterEvent.SPENT)})
_TYPE = re.compile(r"HTTP \d{3}|[A-Za-z_$][\w.$+`:]{0,150}", re.ASCII)
"""What is surely an error's type. What stands before the first colon of somebody's text may be a piece of it."""


class DescribedContent(Protocol):
    """A content as JSON has it; a body that is no UTF-8 is base64."""

    @property
    def properties(self) -> dict[str, Any]: ...
    @property
    def headers(self) -> Any: ...
    @property
    def body(self) -> str: ...
    @property
    def body_encoding(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBody:
    """What is shown of a body; None: nothing, and `why`, in a sentence."""

    body: bytes | None
    why: str | None = None


TOO_COSTLY = ShownBody(
    body=None, why="it takes too long to look through it for what is hidden from this role, so all of it is hidden"
)


class View:
    """One view of messages. Values go in whole and come out as they may be seen."""

    def __init__(self, *, sees_payloads: bool, rules: Iterable[Redaction] = ()) -> None:
        rules = tuple(rules)
        self.sees_payloads = sees_payloads
        self._paths = tuple(path_of(one.path) for one in rules if one.kind == "body")
        self._headers = frozenset(one.path.casefold() for one in rules if one.kind == "header")

    @classmethod
    def of_role(cls, role: Role, *, sees_payloads: bool, redactions: Iterable[Redaction]) -> "View":
        """What a role sees where these redactions hold."""
        rules = [one for one in redactions if one.hidden_from.includes(role)] if sees_payloads else []
        return cls(sees_payloads=sees_payloads, rules=rules)

    @property
    def is_whole(self) -> bool:
        """Nothing is hidden."""
        return self.sees_payloads and not self._paths and not self._headers

    def letter(self, letter: Mapping[str, Any]) -> dict[str, Any]:
        """A dead letter as `letter_json` makes it, with or without `stack`, `history`, `edits`; and `redacted`."""
        if self.is_whole:
            return {**letter, "redacted": False}
        shown = dict(letter)
        shown["redacted"] = True
        if isinstance(shown.get("error"), Mapping):
            error = shown["error"]
            kind, message = self.error_type(error.get("type")), self.error_text(error.get("message"))
            shown["error"] = {**error, "type": kind, "message": message}
        if "stack" in shown:
            shown["stack"] = self.error_text(shown["stack"])
        if isinstance(shown.get("history"), list):
            shown["history"] = [{**one, "error": self.error_text(one.get("error"))} for one in shown["history"]]
        if isinstance(shown.get("life"), list):
            shown["life"] = [self._happening(one) for one in shown["life"]]
        if isinstance(shown.get("edits"), list):
            shown["edits"] = [{**one, "diff": self.payload_text(one.get("diff"))} for one in shown["edits"]]
        return shown

    def group(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """A group as `group_json` makes it: its title has the error's message in it."""
        shown = dict(group)
        if not self.is_whole:
            shown["error_type"] = self.error_type(shown.get("error_type"))
            shown["title"] = shown["error_type"] or "an error"
        return shown

    def content(self, described: DescribedContent, shown: ShownBody | None = None) -> dict[str, Any]:
        """Properties, typed headers and body; hidden values are null, and `redacted` says whether there are any,
        `body_hidden` why nothing of the body is shown. `shown`: what `show_body` makes of `body_of`, where somebody has
        asked already."""
        body = body_of(described)
        shown = self.shown_body(body) if shown is None else shown
        shown_body = shown.body
        headers = self.headers(described.headers)
        properties = self.properties(described.properties)
        is_same = shown_body == body and headers == described.headers and properties == described.properties
        text, encoding = described.body, described.body_encoding
        if shown_body != body:
            text = "" if shown_body is None else shown_body.decode()
            encoding = "utf-8"
        return {
            "properties": properties,
            "headers": headers,
            "body": None if shown_body is None else text,
            "body_encoding": None if shown_body is None else encoding,
            "body_hidden": shown.why,
            "redacted": not is_same,
        }

    def body(self, body: bytes) -> bytes | None:
        """A body; written anew where a value in it is hidden, None where all of it is."""
        return self.shown_body(body).body

    def shown_body(self, body: bytes) -> ShownBody:
        """The same, and why where all of it is hidden."""
        try:
            return self.show_body(body)
        except MaskingTooExpensive:
            return TOO_COSTLY

    def must_read(self, body: bytes) -> bool:
        """Whether a body is looked through for values, which takes a while where it is long."""
        return self.sees_payloads and bool(self._paths) and not body.startswith(ENVELOPE)

    def show_body(self, body: bytes, *, work_max: int = WORK_MAX, go_on: Callable[[], None] | None = None) -> ShownBody:
        """As `hide_in_body` does it. Raises `MaskingTooExpensive`."""
        if not self.sees_payloads:
            return ShownBody(body=None, why="the token is not granted payloads")
        if not self.is_whole and body.startswith(ENVELOPE):
            return ShownBody(body=None, why="it holds a whole message, headers too, of which some are hidden")
        if not self._paths:
            return ShownBody(body=body)
        shown = hide_in_body(body, self._paths, work_max=work_max, go_on=go_on)
        why = "values in it are hidden from this role, and it is no JSON in which they could be found"
        return ShownBody(body=shown, why=why if shown is None else None)

    def headers(self, headers: Any) -> Any:
        """Typed headers, as `describe` has them; names stay."""
        names = None if not self.sees_payloads else self._headers
        return hide_in_headers(headers, names, hides_errors=not self.is_whole)

    def properties(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The other properties. Malformed ones are one piece, headers and all."""
        if "base64" in properties and not self.is_whole:
            return {}
        return dict(properties)

    def error_text(self, text: str | None) -> str | None:
        """An error's message or stack, which may quote the payload."""
        return text if self.is_whole else None

    def error_type(self, text: str | None) -> str | None:
        """An error's type, unless it may be a piece of a message."""
        return text if self.is_whole or text is None or _TYPE.fullmatch(text) else None

    def payload_text(self, text: str | None) -> str | None:
        """A text made of payloads, in which no path can be found again: a diff."""
        return text if self.is_whole else None

    def filter_text(self, text: str) -> str:
        """A filter somebody else wrote, which may name values. A long one is not read for that: a page has many."""
        if self.is_whole:
            return text
        if len(text) > FILTER_READ_MAX:
            return HIDDEN_FILTER
        try:
            reason = self.forbids(parse_filter(text, now_ms=0))
        except InvalidFilter:
            reason = "nobody knows what it names"
        return text if reason is None else HIDDEN_FILTER

    def forbids(self, filter: Filter) -> str | None:
        """Why a filter may not be used, in a sentence; None where it may."""
        if self.is_whole:
            return None
        for term in filter.terms:
            match term:
                case WordsTerm() | ErrorTerm() | BodyTerm() | HeaderTerm() if not self.sees_payloads:
                    return (
                        "filters on bodies, headers, words and errors' texts need a token that sees payloads; "
                        "filter by queue, status, error_type and the like"
                    )
                case BodyTerm(path=path) if any(overlaps(path, hidden) for hidden in self._paths):
                    return f"the value at body.{'.'.join(path)} is hidden from your role, so it can't be searched for"
                case HeaderTerm(name=name) if self.hides_header(name):
                    return f"the header {name} is hidden from your role, so it can't be searched for"
                case WordsTerm():
                    return (
                        "some values are hidden from your role, and a search for words would find them; "
                        "name where to look: body.path:value or header.name:value"
                    )
                case ErrorTerm():
                    return (
                        "some values are hidden from your role, and errors' texts may quote them; "
                        "filter by error_type, status_code or group"
                    )
                case NameTerm(field="error_type", values=values) if not all(_TYPE.fullmatch(one) for one in values):
                    return (
                        "some values are hidden from your role, and what stands for an error's type may quote them; "
                        "write a whole type, without *"
                    )
                case _:
                    pass
        return None

    def hides_header(self, name: str) -> bool:
        """Whether a header's value is hidden: by a rule, or because it has an error's text."""
        if self.is_whole:
            return False
        return not self.sees_payloads or name.casefold() in self._headers or has_error_text(name)

    def _happening(self, happening: Mapping[str, Any]) -> Mapping[str, Any]:
        """An entry of a life: of one that came back it has the error's text."""
        if happening.get("event") not in _EVENTS_WITH_ERROR_TEXT:
            return happening
        return {**happening, "detail": ""}


def body_of(described: DescribedContent) -> bytes:
    """A described content's body."""
    return described.body.encode() if described.body_encoding == "utf-8" else base64.b64decode(described.body)
