"""What the caller of a request sees of messages: by role, grant, and the redactions in the store (`records.View`)."""

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Depends, Request

from redrive.admin.access.authorization import REDACTIONS, caller_of
from redrive.admin.access.caller import Caller
from redrive.admin.services import services_of
from redrive.records import MessageContent, Redaction, View, body_of
from redrive.stores import Store, redact_body
from redrive.wiring import describe_content


async def view_for(caller: Caller, store: Store, known: Iterable[Redaction] | None = None) -> View:
    """What this caller sees now. `known`: the redactions, if they were just read. Raises `StoreUnavailable`."""
    rules: Iterable[Redaction] = ()
    if caller.sees_payloads:
        rules = await store.redactions.all() if known is None else known
    return View.of_role(caller.role, sees_payloads=caller.sees_payloads, redactions=rules)


async def visible_content(view: View, content: MessageContent) -> dict[str, Any]:
    """A message as `View.content` shows it. Values in long bodies are hidden in another process meanwhile."""
    described = describe_content(content)
    return view.content(described, await redact_body(view, body_of(described)))


async def _current_view(request: Request) -> View:
    known = request.scope.get(REDACTIONS)
    return await view_for(caller_of(request), services_of(request).store, known)


CurrentView = Annotated[View, Depends(_current_view)]
"""What the caller of a request sees."""
