"""A value inside a message is found where its path says, and nowhere else."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.records import (
    BodyPath,
    HeaderIs,
    certain_words,
    matches_body,
    matches_glob,
    matches_header,
    words_of,
)

BODY = msgspec.json.encode(
    {
        "customer": {"id": 42, "name": "Zoë Müller", "vip": True, "note": None},
        "items": [{"sku": "A1"}, {"sku": "B2"}],
        "tags": ["new", "late"],
        "price": 1.5,
        "7": "seven",
        "*": "star",
    }
)


def has(path: str, value: str, body: bytes = BODY) -> bool:
    return matches_body(BodyPath(path=tuple(path.split(".")), value=value), body)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("customer.id", "42"),
        ("customer.name", "Zoë Müller"),
        ("customer.name", "Zoë*"),
        ("customer.vip", "true"),
        ("customer.note", "null"),
        ("items.0.sku", "A1"),
        ("items.*.sku", "B2"),
        ("*.id", "42"),
        ("tags", "late"),
        ("tags.1", "late"),
        ("price", "1.5"),
        ("7", "seven"),
        ("*", "star"),
        ("price", "*"),
    ],
)
def test_a_value_at_a_path_is_found(path: str, value: str) -> None:
    assert has(path.replace("*.id", "customer.id"), value)
    assert not matches_body(BodyPath(path=tuple(path.split(".")), value=value, negated=True), BODY) or path == "*.id"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("customer.id", "4"),
        ("customer.id", "43"),
        ("customer.name", "zoë müller"),
        ("customer", "42"),
        ("items.2.sku", "A1"),
        ("items.sku", "A1"),
        ("missing", "null"),
        ("price", "1.50"),
        ("customer.id.x", "42"),
    ],
)
def test_what_is_not_there_is_not_found(path: str, value: str) -> None:
    assert not has(path, value)


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"{", b"customer", b'{"customer": {"id": 42}', b"[" * 100_000])
def test_a_body_that_is_no_json_has_no_values(body: bytes) -> None:
    assert not has("customer.id", "42", body)
    assert matches_body(BodyPath(path=("a",), value="*", negated=True), body)


def test_a_number_is_compared_as_it_is_written() -> None:
    assert has("n", "1.50", b'{"n": 1.50}')
    assert has("n", "123456789012345678901.5", b'{"n": 123456789012345678901.5}')
    assert has("n", "9007199254740993", b'{"n": 9007199254740993}')


HEADERS: dict[str, Any] = {
    "x-tenant": "acme",
    "n": 5,
    "flag": False,
    "raw": b"bytes",
    "when": datetime(2026, 11, 1, 12, tzinfo=UTC),
    "price": Decimal("3.10"),
    "CC": ["a", "b"],
    "void": None,
    "table": {"a": "b"},
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-tenant", "acme"),
        ("X-Tenant", "ac*"),
        ("n", "5"),
        ("flag", "false"),
        ("raw", "bytes"),
        ("when", "2026-11-01T12:00:00Z"),
        ("price", "3.10"),
        ("CC", "b"),
        ("void", "null"),
    ],
)
def test_a_header_is_found_by_its_text(name: str, value: str) -> None:
    assert matches_header(HeaderIs(name=name, value=value), HEADERS)
    assert not matches_header(HeaderIs(name=name, value=value, negated=True), HEADERS)


def test_another_header_or_value_is_not_found() -> None:
    for name, value in [("x-tenant", "ACME"), ("x-tenan", "acme"), ("table", "b"), ("n", "55")]:
        assert not matches_header(HeaderIs(name=name, value=value), HEADERS)


def test_words_are_runs_of_letters_and_digits_in_lower_case() -> None:
    assert words_of("Order-17: Zoë's_cat, 3.5 ms!") == ("order", "17", "zoë", "s", "cat", "3", "5", "ms")
    assert words_of("…") == ()


def test_only_words_that_no_star_touches_are_certain() -> None:
    assert certain_words("foo* bar *baz qux") == ("bar", "qux")
    assert certain_words("plain text") == ("plain", "text")


pieces = st.text("ab*", max_size=10)


@given(pieces, st.text("ab", max_size=12))
def test_a_star_stands_for_any_text(pattern: str, text: str) -> None:
    def slow(wanted: str, rest: str) -> bool:
        if not wanted:
            return not rest
        if wanted[0] == "*":
            return slow(wanted[1:], rest) or (bool(rest) and slow(wanted, rest[1:]))
        return bool(rest) and wanted[0] == rest[0] and slow(wanted[1:], rest[1:])

    assert matches_glob(pattern, text) == slow(pattern, text)


@given(
    st.lists(st.sampled_from(["foo", "bar", "*", " ", "-"]), max_size=6).map("".join), st.text("fobar -", max_size=12)
)
def test_certain_words_stand_in_whatever_matches(pattern: str, text: str) -> None:
    if matches_glob(pattern, text):
        assert set(certain_words(pattern)) <= set(words_of(text))
