"""What a caller sees of a message: nothing without a grant, all but what is hidden from the role with it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.admin.access.caller import Caller
from redrive.admin.access.hiding import MASK, hide_in_body, hide_in_headers, overlaps, path_of
from redrive.admin.access.redaction import HIDDEN_FILTER, Redactor, View
from redrive.admin.problems import Problem
from redrive.dlq import Described, describe
from redrive.records import Content, Redaction, Role, letter_json, parse_filter
from redrive.stores import Store
from redrive.wire import Properties
from tests.unit.admin.conftest import ClientFor, Run, audited
from tests.unit.stores.letter_making import NOW_MS, make_letter

BLIND = View(sees_payloads=False)
WHOLE = View(sees_payloads=True)
SECRET = "4111111111111111"


def rule(kind: Any, path: str, hidden_from: Role = Role.OPERATOR) -> Redaction:
    return Redaction(id=f"{kind}{path}", kind=kind, path=path, hidden_from=hidden_from)


CAREFUL = View(sees_payloads=True, rules=[rule("body", "customer.card"), rule("header", "X-User")])


def described(body: Any, **headers: Any) -> Described:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return describe(Content(properties=Properties.of(headers=headers, app_id="shop").raw, body=raw))


def test_without_a_grant_there_is_no_payload_and_no_error_text() -> None:
    letter = letter_json(make_letter(error_message=f"card {SECRET}"))
    shown = BLIND.letter(
        {
            **letter,
            "stack": f"at {SECRET}",
            "history": [{"number": 1, "at": None, "error": f"X: {SECRET}"}],
            "edits": [{"who": "ada", "diff": f"+{SECRET}"}],
        }
    )
    assert SECRET not in json.dumps(shown)
    assert (shown["error"]["type"], shown["error"]["message"], shown["redacted"]) == ("TimeoutError", None, True)
    assert shown["queue"] == "orders"
    content = BLIND.content(described({"card": SECRET}, user=SECRET))
    assert content == {
        "properties": {"app_id": "shop"},
        "headers": {"user": None},
        "body": None,
        "body_encoding": None,
        "redacted": True,
    }
    group = BLIND.group({"title": f"TimeoutError: card {SECRET}", "error_type": "TimeoutError", "id": "g"})
    assert group == {"title": "TimeoutError", "error_type": "TimeoutError", "id": "g"}


def test_with_a_grant_everything_is_as_it_is() -> None:
    letter = letter_json(make_letter())
    assert WHOLE.letter(letter) == {**letter, "redacted": False}
    for body in ({"card": SECRET}, b"\xff\x00", b"", b"plain"):
        one = described(body, user=SECRET)
        assert WHOLE.content(one) == {
            "properties": one.properties,
            "headers": one.headers,
            "body": one.body,
            "body_encoding": one.body_encoding,
            "redacted": False,
        }


def test_a_rule_hides_its_value_and_nothing_else() -> None:
    content = CAREFUL.content(described({"customer": {"card": SECRET, "name": "Ada"}}, **{"x-user": SECRET, "a": 1}))
    assert json.loads(content["body"]) == {"customer": {"card": MASK, "name": "Ada"}}
    assert content["headers"] == {"x-user": MASK, "a": 1}
    assert content["redacted"] is True
    untouched = described({"customer": {"name": "Ada"}}, a=1)
    assert CAREFUL.content(untouched)["body"] == untouched.body
    assert CAREFUL.content(untouched)["redacted"] is False


@pytest.mark.parametrize("body", [b"card " + SECRET.encode(), b"\x1f\x8b" + SECRET.encode(), b"{" + SECRET.encode()])
def test_where_a_rule_can_t_be_applied_the_whole_body_is_hidden(body: bytes) -> None:
    assert CAREFUL.body(body) is None
    content = CAREFUL.content(described(body))
    assert (content["body"], content["body_encoding"], content["redacted"]) == (None, None, True)


@pytest.mark.parametrize(
    "body",
    [
        b'{"customer": {"card": "4111111111111111"}, "customer": {}}',
        b'{"customer": {"card": "4111111111111111", "card": 1}}',
        b'{"customer": {"\\u0063ard": "4111111111111111"}}',
        '{"customer": {"card": "4111111111111111"}}'.encode("utf-16"),
        b'\xef\xbb\xbf{"customer": {"card": "4111111111111111"}}',
    ],
)
def test_tricks_of_json_show_nothing(body: bytes) -> None:
    shown = CAREFUL.body(body)
    assert shown is None or (SECRET.encode() not in shown and SECRET.encode("utf-16-le") not in shown)


def test_paths_are_those_of_filters() -> None:
    assert path_of("customer.card") == ("customer", "card")
    assert path_of('"a.b".*.0') == ("a.b", "*", "0")
    masked = hide_in_body(b'{"items": [{"price": 1, "n": 2}, {"price": {"deep": 3}}]}', (path_of("items.*.price"),))
    assert masked is not None
    assert json.loads(masked) == {"items": [{"price": MASK, "n": 2}, {"price": MASK}]}
    first = hide_in_body(b'{"items": [1, 2]}', (("items", "0"),))
    assert first is not None
    assert json.loads(first) == {"items": [MASK, 2]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab*0"), inner, max_size=3),
    max_leaves=12,
)
PATHS = st.lists(st.sampled_from(["a", "b", "*", "0"]), min_size=1, max_size=3).map(tuple)


@given(document=JSON, path=PATHS)
def test_whatever_the_document_what_is_hidden_is_found_nowhere_by_its_path(document: Any, path: Any) -> None:
    shown = hide_in_body(json.dumps(document).encode(), (path,))
    assert shown is not None
    found = [json.loads(shown)]
    for step in path:
        found = [below for one in found for below in _below(one, step)]
    assert all(value == MASK for value in found)


def _below(value: Any, step: str) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values()) if step == "*" else [value[step]] if step in value else []
    if isinstance(value, list):
        return value if step == "*" else [value[0]] if step == "0" and value else []
    return []


def test_headers_given_as_entries_are_hidden_too() -> None:
    entries = [["x-user", SECRET], ["a", 1], ["x-user", 2]]
    assert hide_in_headers(entries, frozenset({"x-user"})) == [["x-user", MASK], ["a", 1], ["x-user", MASK]]
    assert hide_in_headers(entries, None) == [["x-user", None], ["a", None], ["x-user", None]]
    assert hide_in_headers("odd", None) is None


def test_malformed_properties_are_hidden_whole() -> None:
    assert BLIND.properties({"base64": SECRET}) == {}
    assert CAREFUL.properties({"base64": SECRET}) == {}
    assert WHOLE.properties({"base64": SECRET}) == {"base64": SECRET}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a.b", "a.b", True),
        ("a", "a.b", True),
        ("a.b.c", "a.b", True),
        ("*.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.c", "a.b", False),
        ("b", "a.b", False),
    ],
)
def test_paths_overlap_where_one_may_hold_the_other(one: str, other: str, expected: bool) -> None:
    assert overlaps(path_of(one), path_of(other)) is expected
    assert overlaps(path_of(other), path_of(one)) is expected


@pytest.mark.parametrize(
    ("text", "blind", "careful"),
    [
        ("queue:orders status:failed error_type:TimeoutError", True, True),
        ("body.customer.card:4111*", False, False),
        ("-body.customer.card:4111*", False, False),
        ("body.*.card:4111*", False, False),
        ("body.customer:x", False, False),
        ("body.order:7", False, True),
        ("header.x-user:ada", False, False),
        ("header.X-USER:ada", False, False),
        ("header.other:ada", False, True),
        ("timeout", False, False),
        ('"two words"', False, False),
        ("error:slow", False, True),
    ],
)
def test_nobody_searches_for_what_they_don_t_see(text: str, blind: bool, careful: bool) -> None:
    filter = parse_filter(text, now_ms=NOW_MS)
    for view, allowed in ((BLIND, blind), (CAREFUL, careful), (WHOLE, True)):
        assert (view.forbids(filter) is None) is allowed
        assert (view.filter_text(text) == text) is allowed
        if not allowed:
            assert view.filter_text(text) == HIDDEN_FILTER
            with pytest.raises(Problem) as refused:
                view.check_filter(filter)
            assert refused.value.status == 403


def test_rules_are_for_a_role_and_those_below_it(run: Run, store: Store) -> None:
    async def scenario() -> None:
        await store.redactions.set(rule("body", "card", Role.OPERATOR), who="x", now_ms=0)
        await store.redactions.set(rule("header", "deep", Role.ADMIN), who="x", now_ms=0)
        redactor = Redactor(store)
        seen = {}
        for role in Role:
            view = await redactor.for_caller(Caller(token_id="t", name="n", role=role, sees_payloads=True))
            seen[role] = (view.body(b'{"card": 1}') == b'{"card": 1}', view.headers({"deep": 1})["deep"] == 1)
        assert seen == {Role.VIEWER: (False, False), Role.OPERATOR: (False, False), Role.ADMIN: (True, False)}
        blind = await redactor.for_caller(Caller(token_id="t", name="n", role=Role.VIEWER))
        assert blind.body(b"{}") is None

    run(scenario())


def test_redactions_are_made_changed_and_removed_over_the_api(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        admin = await client_for(Role.ADMIN, name="root")
        first = await admin.post(
            "/api/v1/redactions", json={"kind": "body", "path": "$.customer.card", "hidden_from": "viewer"}
        )
        assert (first.status_code, first.json()["path"]) == (201, "customer.card")
        second = await admin.post(
            "/api/v1/redactions", json={"kind": "body", "path": "customer.card", "hidden_from": "admin"}
        )
        assert second.json() == {**first.json(), "hidden_from": "admin"}
        listed = await admin.get("/api/v1/redactions")
        assert listed.json() == {"redactions": [second.json()]}
        assert (await admin.delete(f"/api/v1/redactions/{first.json()['id']}")).status_code == 204
        assert (await admin.delete(f"/api/v1/redactions/{first.json()['id']}")).status_code == 404
        assert await store.redactions.all() == ()
        assert [who for who, _, _ in await audited(store, "redaction.set")] == ["root", "root"]
        assert await audited(store, "redaction.removed") == [("root", "body.customer.card", 1)]

    run(scenario())


@pytest.mark.parametrize("path", ["", " ", "a b", "a:b", 'a"', "a..b", ".", "a\x00", "x" * 301, "a:x body.b"])
def test_what_is_no_path_is_refused(run: Run, client_for: ClientFor, store: Store, path: str) -> None:
    async def scenario() -> None:
        admin = await client_for(Role.ADMIN)
        answer = await admin.post("/api/v1/redactions", json={"kind": "body", "path": path, "hidden_from": "viewer"})
        assert answer.status_code == 422, answer.text
        assert await store.redactions.all() == ()

    run(scenario())
