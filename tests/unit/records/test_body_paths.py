"""A value inside a message is found where its path says, and nowhere else."""

import json
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.records import (
    VALUES_BYTES_MAX,
    BodyValues,
    certain_words,
    cut_words,
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
    return BodyValues(body).has(tuple(path.split(".")), value)


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
    assert not has("*", "*", body)


def test_a_body_that_is_too_large_to_look_into_has_no_values() -> None:
    large = b'{"a": "' + b"x" * (VALUES_BYTES_MAX - 20) + b'", "b": 42}'
    assert has("b", "42", large)
    assert not has("b", "42", large + b" " * 20)


def test_a_body_is_taken_apart_once_for_all_questions() -> None:
    class Counting:
        spent = 0

        def spend(self, cost: int) -> None:
            self.spent += cost

    body = msgspec.json.encode({"a": [[n, n + 1] for n in range(20_000)]})
    meter = Counting()
    values = BodyValues(body, meter)
    assert not values.has(("a", "*", "1"), "zz")
    first = meter.spent
    assert not values.has(("a", "*", "1"), "yy")
    assert not values.has(("a", "*", "0"), "zz")
    assert meter.spent - first < 2 * first
    assert first > len(body)
    small = Counting()
    assert BodyValues(b'{"a": {"b": 42}}', small).has(("a", "b"), "42")
    assert small.spent < 2_000


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0", "*"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(documents, st.lists(st.sampled_from(["a", "b", "0", "1", "*"]), min_size=1, max_size=4))
def test_what_is_found_is_what_walking_the_document_finds(document: Any, path: list[str]) -> None:
    def walk(value: Any, steps: list[str]) -> list[Any]:
        if not steps:
            return value if isinstance(value, list) else [value]
        step, *rest = steps
        if isinstance(value, dict):
            chosen = [value[step]] if step in value else list(value.values()) if step == "*" else []
        elif isinstance(value, list):
            chosen = value if step == "*" else value[int(step) : int(step) + 1] if step.isdigit() else []
        else:
            chosen = []
        return [leaf for one in chosen for leaf in walk(one, rest)]

    leaves = [leaf for leaf in walk(document, path) if not isinstance(leaf, dict | list)]
    values = BodyValues(json.dumps(document).encode("utf-8", "replace"))
    assert values.has(tuple(path), "*") == bool(leaves)
    for leaf in leaves:
        text = leaf if isinstance(leaf, str) else json.dumps(leaf)
        assert values.has(tuple(path), text.replace("*", "*"))


def test_a_number_is_compared_as_it_is_written() -> None:
    assert has("n", "1.50", b'{"n": 1.50}')
    assert has("n", "123456789012345678901.5", b'{"n": 123456789012345678901.5}')
    assert has("n", "9007199254740993", b'{"n": 9007199254740993}')


@pytest.mark.parametrize(
    "number",
    [
        *("0", "-0", "-0.0", "1.0", "0.1", "1e5", "1E+5", "1e-5", "1e999999999", "-1.5e-300"),
        *(str(1 << 64), str(-(1 << 64)), "12345678901234567890123", "9" * 10_000, "-" + "9" * 100_000 + ".5e5"),
    ],
)
def test_a_number_of_any_size_is_found_as_it_is_written_and_not_otherwise(number: str) -> None:
    body = b'{"order": %b, "list": [%b]}' % (number.encode(), number.encode())
    for path in ("order", "list", "list.0"):
        assert has(path, number, body)
        assert has(path, "*", body)
        assert not has(path, number + "0", body)
        assert not has(path, number.removeprefix("-") if number.startswith("-") else f"-{number}", body)


@pytest.mark.parametrize("number", ["01", "1.", "-", ".5", "+1", "1e", "0x1", "-Nan", "--1"])
def test_what_no_parser_takes_for_a_number_makes_a_body_no_json(number: str) -> None:
    assert not has("a", "*", b'{"a": 1, "order": %b}' % number.encode())


@pytest.mark.parametrize(
    ("body", "path", "value"),
    [
        (r'{"order": 7, "note": "\ud800"}', "order", "7"),
        (r'{"order": 7, "note": "a\ud800b"}', "note", "a\ufffdb"),
        (r'{"order": 7, "note": "a\udfffb"}', "note", "a\udfffb"),
        (r'{"order": 7, "note": "\udc00\ud83d\ude00\uD83D"}', "note", "\ufffd😀\ufffd"),
        (r'{"order": 7, "note": "\\ud800\ud800"}', "note", r"\ud800" + "\ufffd"),
        (r'{"\ud800": {"order": 7}}', "\ufffd.order", "7"),
        ('{"order": 7, "rate": NaN, "high": [Infinity, -Infinity]}', "order", "7"),
        ('{"order": 7, "rate": NaN, "high": [Infinity, -Infinity]}', "rate", "NaN"),
        ('{"order": 7, "rate": NaN, "high": [Infinity, -Infinity]}', "high.1", "-Infinity"),
        (r'{"order": 7, "rate": NaN, "note": "NaN, \"NaN"}', "note", 'NaN, "NaN'),
        ('\ufeff{"order": 7}', "order", "7"),
        ('{"order": 6, "order": 7}', "order", "7"),
    ],
)
def test_what_most_parsers_read_is_read(body: str, path: str, value: str) -> None:
    json.loads(body.removeprefix("\ufeff"))
    assert has(path, value, body.encode())


@pytest.mark.parametrize(
    "body",
    [
        *('{"order": 7, NaN: 1}', '{"order": 7, "a": nan}', '{"order": 7, "a": aNaN}', '{"order": 7, "a": -NaN}'),
        *('{"order": 7, "a": "NaN}', '{"order": 7, "a": "\ud800}', '{"order": 7,}', "{'order': 7, 'a': NaN}"),
        *(r'{"order": 7, "a": "\ud80"}', '{"order": 7, "a": "\n", "b": NaN}', '{"order": 7} // NaN'),
    ],
)
def test_what_no_parser_reads_has_no_values(body: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)
    assert not has("order", "7", body.encode("utf-8", "replace"))


@pytest.mark.parametrize("filling", [rb"\"", rb"\ud800", b'"', b"NaN,", rb"\\", b"["])
def test_reading_again_takes_no_longer_for_what_is_never_closed(filling: bytes) -> None:
    def seconds(size: int) -> float:
        body = b'{"order": NaN, "note": ["' + filling * (size // len(filling))
        began_s = time.process_time()
        assert not has("order", "7", body)
        return time.process_time() - began_s

    assert seconds(200_000) < 30 * max(seconds(20_000), 0.001)


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
    assert matches_header(name, value, HEADERS)


def test_another_header_or_value_is_not_found() -> None:
    for name, value in [("x-tenant", "ACME"), ("x-tenan", "acme"), ("table", "b"), ("n", "55")]:
        assert not matches_header(name, value, HEADERS)


def test_words_are_runs_of_letters_and_digits_in_lower_case() -> None:
    assert words_of("Order-17: Zoë's_cat, 3.5 ms!") == ("order", "17", "zoë", "s", "cat", "3", "5", "ms")
    assert words_of("…") == ()
    assert words_of("I\u0307stanbul e\u0301cole") == ("i\u0307stanbul", "e\u0301cole")


def test_only_words_that_no_star_touches_are_certain() -> None:
    assert certain_words("foo* bar *baz qux") == ("bar", "qux")
    assert certain_words("plain text") == ("plain", "text")
    assert certain_words("İstanbul e\u0301cole*") == ("istanbul",)
    assert certain_words("*") == certain_words("") == certain_words("a*b") == ()


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
    st.lists(st.sampled_from(["foo", "bar", "*", " ", "-", "İ", "e\u0301", "Σ", ".", "ß"]), max_size=6).map("".join),
    st.data(),
)
def test_certain_words_stand_in_whatever_matches(pattern: str, data: st.DataObject) -> None:
    parts = pattern.split("*")
    between = st.text("fobar -.Σİ\u0301", max_size=5)
    text = parts[0] + "".join(data.draw(between) + part for part in parts[1:])
    assert matches_glob(pattern, text)
    assert set(certain_words(pattern)) <= set(cut_words(text))
