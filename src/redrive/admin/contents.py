"""Messages as a view shows them. Where values are hidden in long bodies somebody else does the work meanwhile."""

from typing import Any

from redrive.admin.access import View
from redrive.records import MessageContent, body_of
from redrive.stores import redact_body
from redrive.wiring import describe


async def shown_content(view: View, content: MessageContent) -> dict[str, Any]:
    """A content as `View.content` tells it."""
    described = describe(content)
    return view.content(described, await redact_body(view, body_of(described)))
