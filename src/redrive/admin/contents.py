"""Messages as a view shows them. Where values are hidden in long bodies somebody else does the work meanwhile."""

from typing import Any

from redrive.admin.access import View
from redrive.records import Content, body_of
from redrive.stores import body_as_seen
from redrive.wiring import describe


async def shown_content(view: View, content: Content) -> dict[str, Any]:
    """A content as `View.content` tells it."""
    described = describe(content)
    return view.content(described, await body_as_seen(view, body_of(described)))
