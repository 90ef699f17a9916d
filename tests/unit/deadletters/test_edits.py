"""Edits of a dead letter: what changes, what stays to the byte, and the difference in words."""

from typing import Any

import pytest
from hypothesis import given, settings

from redrive.deadletters.actions.edits import DIFF_BYTES_MAX, InvalidEdit, LetterEdit, body_diff, edit_content
from redrive.records import MessageContent
from redrive.wire import Int8, Properties
from tests.unit.wire import strategies as amqp

ORIGINAL = Properties.of(headers={"tenant": "a", "count": 7}, message_id="m", content_type="application/json")
CONTENT = MessageContent(properties=ORIGINAL.raw, body=b'{\n "amount": 1\n}')


def test_a_new_body_is_told_as_a_unified_diff_and_the_properties_keep_their_bytes() -> None:
    edited = edit_content(CONTENT, LetterEdit(body=b'{\n "amount": 2\n}'))
    assert edited.content == MessageContent(properties=CONTENT.properties, body=b'{\n "amount": 2\n}')
    assert edited.diff.splitlines() == [
        "--- body before",
        "+++ body after",
        "@@ -1,3 +1,3 @@",
        " {",
        '- "amount": 1',
        '+ "amount": 2',
        " }",
    ]


def test_headers_and_properties_are_told_one_by_one_with_types_that_differ_on_the_wire() -> None:
    edit = LetterEdit(
        set_headers={"count": Int8(7), "new": True},
        drop_headers=["tenant", "never was"],
        properties={"content_type": None, "priority": 3},
    )
    edited = edit_content(CONTENT, edit)
    made = Properties(edited.content.properties)
    assert made.present() == {"headers": {"count": 7, "new": True}, "message_id": "m", "priority": 3}
    assert type(made.headers["count"]) is Int8
    assert edited.diff.splitlines() == [
        "-property content_type: 'application/json'",
        "+property priority: 3",
        "-header tenant: 'a'",
        "-header count: 7",
        "+header count: Int8 7",
        "+header new: True",
    ]


@settings(deadline=None)
@given(table=amqp.tables, fields=amqp.properties)
def test_headers_that_an_edit_does_not_name_keep_their_bytes(table: dict[str, Any], fields: dict[str, Any]) -> None:
    original = Properties.of(headers=table, **fields)
    edited = edit_content(
        MessageContent(properties=original.raw, body=b""), LetterEdit(set_headers={"\x00mine": "new"})
    )
    made = Properties(edited.content.properties)
    assert made.edit(drop=["\x00mine"]).present().items() >= {k: v for k, v in fields.items() if k != "headers"}.items()
    for name in table:
        assert made.raw_header(name) == original.raw_header(name)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (LetterEdit(), "the edit changes nothing"),
        (LetterEdit(body=CONTENT.body, set_headers={"tenant": "a"}), "the edit changes nothing"),
        (LetterEdit(properties={"expiration": "5"}), "expiration can't be edited"),
        (LetterEdit(properties={"nonsense": "5"}), "there is no property 'nonsense'"),
        (LetterEdit(properties={"priority": 300}), "300 does not fit in an octet"),
        (LetterEdit(properties={"message_id": 5}), "message_id must be text, not 5"),
        (LetterEdit(properties={"timestamp": "now"}), "must be a time"),
        (LetterEdit(set_headers={"big": 1 << 70}), "can't be written"),
        (LetterEdit(set_headers={"a": 1}, drop_headers=["a"]), "both set and taken away"),
        (LetterEdit(drop_headers=["x-redriven-id"]), "is known by it"),
    ],
)
def test_an_edit_that_can_not_be_made_is_refused_in_a_sentence(edit: LetterEdit, reason: str) -> None:
    with pytest.raises(InvalidEdit, match=reason):
        edit_content(CONTENT, edit)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (b"\xff\x00", b"text", ["body: 2 bytes of binary → 4 bytes of text"]),
        (b"a\n", b"a\r\n", ["body: 2 bytes of text → 3 bytes of text, only its line ends"]),
        (b"", b"x" * (2 << 20), ["body: 0 bytes of text → 2,097,152 bytes of text"]),
    ],
)
def test_bodies_that_have_no_lines_to_compare_are_compared_by_their_size(
    old: bytes, new: bytes, lines: list[str]
) -> None:
    assert body_diff(old, new) == lines


def test_a_long_difference_is_bounded_and_says_so() -> None:
    edited = edit_content(CONTENT, LetterEdit(body=b"".join(b"line %d of many\n" % number for number in range(5_000))))
    assert len(edited.diff.encode()) <= DIFF_BYTES_MAX
    assert "bytes left out" in edited.diff
