"""The broker's words become typed errors that name what they are about."""

import pytest

from redrive.client import AccessRefused, ChannelClosed, NotFound, PreconditionFailed, ResourceLocked
from redrive.client.errors import channel_closed


@pytest.mark.parametrize(
    ("code", "text", "kind", "about"),
    [
        (404, "NOT_FOUND - no queue 'q' in vhost '/'", NotFound, ("queue", "q")),
        (404, "NOT_FOUND - no queue 'it's' in vhost '/'", NotFound, ("queue", "it's")),
        (404, "NOT_FOUND - no exchange '' in vhost '/'", NotFound, ("exchange", "")),
        (403, "ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix", AccessRefused, ("queue", "amq.x")),
        (403, "ACCESS_REFUSED - access to exchange 'x' in vhost 'v' refused", AccessRefused, ("exchange", "x")),
        (405, "RESOURCE_LOCKED - locked queue 'q' in vhost '/'.", ResourceLocked, ("queue", "q")),
        (406, "PRECONDITION_FAILED - inequivalent arg 'a' for queue 'q' in", PreconditionFailed, ("queue", "q")),
        (406, "PRECONDITION_FAILED - unknown delivery tag 7", PreconditionFailed, ("", "")),
        (311, "CONTENT_TOO_LARGE", ChannelClosed, ("", "")),
    ],
)
def test_a_close_is_typed_by_its_code_and_names_its_object(
    code: int, text: str, kind: type[ChannelClosed], about: tuple[str, str]
) -> None:
    error = channel_closed(code, text)
    assert type(error) is kind
    assert (error.code, error.text) == (code, text)
    assert (error.object_kind, error.object_name) == about


def test_a_pretty_printed_text_is_one_line_for_people_and_unchanged_for_programs() -> None:
    text = "INTERNAL_ERROR - failed: {shutdown,\n          deleted}"
    error = channel_closed(541, text)
    assert str(error) == "541 INTERNAL_ERROR - failed: {shutdown, deleted}"
    assert error.text == text
