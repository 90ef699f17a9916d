"""What a caller sees of a message: without a grant no payload at all, with it all but what rules hide from the role.

A rule hides a value from a role and those below it: at a path in JSON bodies, or of a header. Where a rule can't be
applied because a body is no JSON, the whole body is hidden. And nobody may search for what they don't see: a filter
that finds a message by a value has shown it.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Request

from redrive.admin.access.caller import Caller
from redrive.admin.access.guard import REDACTIONS, caller_of
from redrive.admin.access.hiding import hide_in_body, hide_in_headers, overlaps, path_of
from redrive.admin.problems import forbidden
from redrive.admin.services import services_of
from redrive.dlq import Described, Store
from redrive.records import BodyPath, ErrorLike, Event, Filter, HeaderIs, InvalidFilter, Redaction, Words, parse_filter

HIDDEN_FILTER = "(a filter on payloads)"
_TOLD_BY_ERRORS = frozenset({str(Event.CAME_BACK), str(Event.SPENT)})


class Redactor:
    """Makes views, by the redactions in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def for_caller(self, caller: Caller, known: Iterable[Redaction] | None = None) -> "View":
        """What this caller sees now. `known`: the redactions, where they were just read. Raises `StoreUnavailable`."""
        rules: Iterable[Redaction] = ()
        if caller.sees_payloads:
            every = await self._store.redactions.all() if known is None else known
            rules = [one for one in every if one.hidden_from.includes(caller.role)]
        return View(sees_payloads=caller.sees_payloads, rules=rules)


class View:
    """A caller's view of messages. Values go in whole and come out as the caller may see them."""

    def __init__(self, *, sees_payloads: bool, rules: Iterable[Redaction] = ()) -> None:
        rules = tuple(rules)
        self.sees_payloads = sees_payloads
        self._paths = tuple(path_of(one.path) for one in rules if one.kind == "body")
        self._headers = frozenset(one.path.casefold() for one in rules if one.kind == "header")

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
            shown["error"] = {**shown["error"], "message": self.error_text(shown["error"].get("message"))}
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
        if not self.sees_payloads:
            shown["title"] = shown.get("error_type") or "an error"
        return shown

    def content(self, described: Described) -> dict[str, Any]:
        """Properties, typed headers and body; hidden values are null, and `redacted` says whether there are any."""
        body = described.body.encode() if described.body_encoding == "utf-8" else base64.b64decode(described.body)
        shown_body = self.body(body)
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
            "redacted": not is_same,
        }

    def body(self, body: bytes) -> bytes | None:
        """A body; written anew where a value in it is hidden, None where all of it is."""
        if not self.sees_payloads:
            return None
        return hide_in_body(body, self._paths) if self._paths else body

    def headers(self, headers: Any) -> Any:
        """Typed headers, as `describe` has them; names stay."""
        return hide_in_headers(headers, None if not self.sees_payloads else self._headers)

    def properties(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The other properties. Malformed ones are one piece, headers and all."""
        if "base64" in properties and not (self.sees_payloads and not self._headers):
            return {}
        return dict(properties)

    def error_text(self, text: str | None) -> str | None:
        """An error's message or stack, which may quote the payload."""
        return text if self.sees_payloads else None

    def _happening(self, happening: Mapping[str, Any]) -> Mapping[str, Any]:
        """An entry of a life: of one that came back it has the error's text."""
        if self.sees_payloads or happening.get("event") not in _TOLD_BY_ERRORS:
            return happening
        return {**happening, "detail": ""}

    def payload_text(self, text: str | None) -> str | None:
        """A text made of payloads, in which no path can be found again: a diff."""
        return text if self.is_whole else None

    def filter_text(self, text: str) -> str:
        """A filter somebody else wrote, which may name values."""
        try:
            reason = self.forbids(parse_filter(text, now_ms=0))
        except InvalidFilter:
            reason = None if self.is_whole else "nobody knows what it names"
        return text if reason is None else HIDDEN_FILTER

    def check_filter(self, filter: Filter) -> None:
        """Raises `Problem` 403 if the filter asks for what the caller may not see."""
        reason = self.forbids(filter)
        if reason is not None:
            raise forbidden(reason)

    def forbids(self, filter: Filter) -> str | None:
        """Why the caller may not use a filter, in a sentence; None where it may."""
        for term in filter.terms:
            match term:
                case BodyPath() | HeaderIs() | Words() | ErrorLike() if not self.sees_payloads:
                    return (
                        "filters on bodies, headers, words and errors' texts need a token that sees payloads; "
                        "filter by queue, status, error_type and the like"
                    )
                case BodyPath(path=path) if any(overlaps(path, hidden) for hidden in self._paths):
                    return f"the value at body.{'.'.join(path)} is hidden from your role, so it can't be searched for"
                case HeaderIs(name=name) if name.casefold() in self._headers:
                    return f"the header {name} is hidden from your role, so it can't be searched for"
                case Words() if not self.is_whole:
                    return (
                        "some values are hidden from your role, and a search for words would find them; "
                        "name where to look: body.path:value or header.name:value"
                    )
                case _:
                    pass
        return None


async def _view_of(request: Request) -> View:
    known = request.scope.get(REDACTIONS)
    return await Redactor(services_of(request).store).for_caller(caller_of(request), known)


CurrentView = Annotated[View, Depends(_view_of)]
"""What the caller of a request sees."""
