"""Full text finds a letter by its body, headers, error, ids and route, and not by the depths of a stack."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redrive.core import PlainMessage
from redrive.records import BODY_BYTES_MAX, BodyValues, cut_words, explain, search_text, words_of
from tests.unit.records import sample_headers as frameworks
from tests.unit.wire.strategies import tables


def searched(headers: dict[str, Any], body: bytes) -> str:
    properties = {"message_id": "m-17", "correlation_id": "c-9", "type": "order.placed"}
    letter = PlainMessage(queue="dlq", exchange="shop", routing_key="orders.eu", headers=headers, properties=properties)
    return search_text(explain(letter, dlq="orders.dlq", now_ms=1), headers=headers, body=body)


def test_it_is_found_by_body_headers_error_ids_and_route() -> None:
    found = set(words_of(searched({**frameworks.SPRING, "x-tenant": "acme", "n": 4711}, b'{"customer": "Zo\xc3\xab"}')))
    wanted = "customer zoë x tenant acme 4711 payment took m 17 c 9 order placed"
    assert set(wanted.split()) <= found
    assert {"orders", "eu"} <= set(words_of(searched({}, b"")))


def test_only_the_top_of_a_stack_is_searched() -> None:
    stack = "Boom\n" + "\n".join(f"   at Acme.Deep{number}.Call()" for number in range(50))
    words = set(words_of(searched({"exception-type": "Boom", "exception-stack": stack}, b"")))
    assert "deep1" in words
    assert "deep20" not in words


def test_what_every_parked_message_has_finds_none_of_them() -> None:
    headers = {"x-original-queue": "bay", "x-final-status-code": 503, "x-redrive-parked-at": 1_793_534_400_123}
    words = set(words_of(searched({**headers, "x-redrive-history": [{"error": "e"}], "x-tenant": "acme"}, b"")))
    assert {"bay", "503", "tenant", "acme"} <= words
    assert words.isdisjoint({"original", "final", "parked", "1793534400123", "history"})


def test_a_body_that_is_no_text_is_left_out() -> None:
    assert "abc" not in searched({}, b"abc\xff")
    assert "abc" in searched({}, b"abc")


def test_a_long_body_is_cut_between_two_characters() -> None:
    assert searched({}, b"x" + "é".encode() * BODY_BYTES_MAX).endswith("é")


def test_what_json_escapes_is_found_as_it_reads() -> None:
    body = rb'{"city": "Z\u00fcrich", "text": "one\ntwo", "path": "a\\nb", "face": "\ud83d\ude00x"}'
    assert {"zürich", "one", "two", "nb", "x"} <= set(words_of(searched({}, body)))
    assert BodyValues(body).has(("city",), "Zürich")


@given(tables, st.binary(max_size=200))
def test_any_message_gives_text_that_every_store_takes(headers: dict[str, Any], body: bytes) -> None:
    text = searched(headers, body)
    assert "\0" not in text
    assert text.encode()


@given(st.text(max_size=40))
def test_a_value_in_a_json_body_is_always_found_by_its_words(value: str) -> None:
    for ascii_only in (True, False):
        try:
            body = json.dumps({"k": value}, ensure_ascii=ascii_only).encode()
        except UnicodeEncodeError:
            return
        assert set(cut_words(value)) <= set(cut_words(searched({}, body)))


def test_a_backslash_is_an_escape_in_json_only() -> None:
    assert "new" in words_of(searched({}, rb"C:\new\u00e9"))
    assert "new" not in words_of(searched({}, rb'{"path": "C:\new"}'))
