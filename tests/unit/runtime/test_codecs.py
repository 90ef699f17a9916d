"""Bodies become what handlers take, what can't be read says where and why."""

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

from redrive.runtime import JSON, UnsupportedType
from redrive.runtime.codecs import body_reader


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    id: UUID
    at: datetime
    day: date
    total: Decimal
    colour: Colour
    kind: Literal["new", "old"]
    lines: list[Line]
    tags: set[str] = field(default_factory=set)
    note: str | None = None
    extra: dict[str, int] = field(default_factory=dict)
    weight: float = 0.0
    parent: "Order | None" = None


BODY = b"""{"id": "12345678-1234-5678-1234-567812345678", "at": "2026-01-31T12:00:00Z", "day": "2026-01-31",
 "total": "12.50", "colour": "red", "kind": "new", "lines": [{"sku": "a"}, {"sku": "b", "count": 2}], "tags": ["x"],
 "extra": {"n": 1}, "weight": 2, "unknown": [1]}"""
ORDER = Order(
    id=UUID("12345678-1234-5678-1234-567812345678"),
    at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    day=date(2026, 1, 31),
    total=Decimal("12.50"),
    colour=Colour.RED,
    kind="new",
    lines=[Line("a"), Line("b", 2)],
    tags={"x"},
    extra={"n": 1},
    weight=2.0,
)


def test_a_dataclass_is_read_with_everything_in_it() -> None:
    assert JSON.reader(Order)(BODY) == ORDER


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b'{"sku": 1}', "sku"),
        (b"{}", "sku"),
        (b'{"sku": "a", "count": "2"}', "count"),
        (b'{"sku": "a", "count": true}', "count"),
        (b'["a"]', "object"),
        (b"null", "object"),
        (b"{", ""),
        (b"", ""),
        (b"\xff\xfe", ""),
    ],
)
def test_a_body_that_does_not_fit_is_refused_and_says_where(body: bytes, place: str) -> None:
    with pytest.raises(Exception) as refused:  # each library has an error of its own
        JSON.reader(Line)(body)
    assert place in str(refused.value)


def test_what_has_no_type_is_plain_json() -> None:
    assert JSON.reader(Any)(b'{"a": [1, null]}') == {"a": [1, None]}
    assert JSON.reader(dict)(b'{"a": 1}') == {"a": 1}
    assert JSON.reader(list[int])(b"[1, 2]") == [1, 2]
    with pytest.raises(ValueError):
        JSON.reader(list[int])(b'[1, "2"]')


def test_a_type_that_can_not_be_read_is_refused_when_the_app_starts() -> None:
    with pytest.raises(UnsupportedType):
        JSON.reader(complex)
    with pytest.raises(UnsupportedType):
        JSON.reader(list[dict[str, complex]])


def test_bytes_and_text_need_no_codec() -> None:
    assert body_reader(JSON, bytes) is None
    read = body_reader(JSON, str)
    assert read is not None
    assert read("grün".encode()) == "grün"
    with pytest.raises(UnicodeDecodeError):
        read(b"\xff")


def test_pydantic_models_and_msgspec_structs_are_read_by_their_own() -> None:
    class Model(pydantic.BaseModel):
        id: int

    @pydantic.dataclasses.dataclass
    class Record:
        id: int

    class Struct(msgspec.Struct):
        id: int

    assert JSON.reader(list[Model])(b'[{"id": 1}]') == [Model(id=1)]
    for kind in (Model, Record, Struct):
        assert JSON.reader(kind)(b'{"id": 1}').id == 1
        with pytest.raises(ValueError):
            JSON.reader(kind)(b'{"id": "x"}')
    assert JSON.write(Model(id=1)) == b'{"id":1}'


def test_values_are_written_as_compact_json() -> None:
    assert JSON.write({"a": "grün", "b": [1, None]}) == '{"a":"grün","b":[1,null]}'.encode()
    assert JSON.write(Line("a")) == b'{"sku":"a","count":1}'


def test_unions_take_the_first_member_that_fits() -> None:
    read = JSON.reader(int | str | None)
    assert [read(b"1"), read(b'"a"'), read(b"null")] == [1, "a", None]
    with pytest.raises(ValueError):
        read(b"[]")
