"""Versions in headers: `ETag: "3"` in responses, `If-Match: "3"` in requests that must not overwrite another change."""

import re
from typing import Annotated

from fastapi import Header

from redrive.admin.problems import HttpProblem

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="The ETag that was read; the change is refused with 412 if there is another since.",
        max_length=200,
        examples=['"3"'],
    ),
]
_TAG = re.compile(r'"(\d{1,18})"', re.ASCII)


def etag(version: int) -> str:
    """A version as an ETag."""
    return f'"{version}"'


def expected_version(if_match: str | None) -> int | None:
    """The version that a change expects; None: any. Raises `HttpProblem` 412 for a tag that is not ours."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _TAG.fullmatch(if_match.strip())
    if found is None:
        raise HttpProblem(
            status=412,
            name="version-conflict",
            title="It has changed since it was read",
            detail='If-Match is no ETag of this API; read it again and send what its ETag says, such as "3"',
        )
    return int(found[1])


def required_version(if_match: str | None) -> int | None:
    """The same, but If-Match is required. Raises `HttpProblem` 412 and 428."""
    if if_match is None:
        raise HttpProblem(
            status=428,
            name="if-match-required",
            title="Say which version is to be changed",
            detail="send If-Match with the ETag that was read, so that nobody else's change is overwritten",
        )
    return expected_version(if_match)
