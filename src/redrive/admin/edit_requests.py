"""An edit as a request has it: read, and refused where it would overwrite what its author can't see."""

import base64
import binascii

from fastapi import Request

from redrive.admin.access import Caller, View
from redrive.admin.problems import invalid
from redrive.admin.selecting import forbade
from redrive.admin.shapes.messages import EditRequest
from redrive.deadletters import LetterEdit
from redrive.records import MessageContent
from redrive.stores import redact_body
from redrive.wiring import headers_from_json


def read_edit(asked: EditRequest) -> LetterEdit:
    """What is to be different. Raises `Problem` 422, `InvalidEdit`."""
    body = None if asked.body is None else asked.body.encode()
    if asked.body_base64 is not None:
        try:
            body = base64.b64decode(asked.body_base64, validate=True)
        except (binascii.Error, ValueError):
            raise invalid("body_base64 is no base64") from None
    return LetterEdit(
        body=body,
        set_headers=headers_from_json(asked.set_headers),
        drop_headers=tuple(asked.drop_headers),
        properties=asked.properties,
    )


async def check_hidden(
    request: Request, caller: Caller, view: View, content: MessageContent, change: LetterEdit
) -> None:
    """Raises `Problem` 403 where somebody would overwrite what they can't see."""
    if change.body is not None and (await redact_body(view, content.body)).body != content.body:
        reason = "parts of this body are hidden from your role, and a new body would overwrite them"
        raise await forbade(request, caller, reason)
    for name in (*change.set_headers, *change.drop_headers):
        if view.hides_header(name):
            raise await forbade(request, caller, f"the header {name} is hidden from your role; it can't be edited")
