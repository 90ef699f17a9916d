"""What a caller sees of a message: nothing without a grant, all but what is hidden from the role with it."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.admin.access.caller import Caller
from redrive.admin.access.caller_view import view_for
from redrive.records import (
    HIDDEN_FILTER,
    MASK,
    TOO_COSTLY,
    LetterEvent,
    MessageContent,
    Redaction,
    Role,
    View,
    letter_json,
    parse_filter,
)
from redrive.records.masking import HIDING_BYTES_MAX, hide_in_body, hide_in_headers, overlaps, path_of
from redrive.stores import Store
from redrive.stores.letters.transitions import record_lifecycle
from redrive.wire import Properties
from redrive.wire.envelopes import wrap_in_envelope
from redrive.wiring import ContentJson, describe_content
from tests.unit.admin.conftest import ClientFor, Clock, PutLetter, Run, audited
from tests.unit.event_loop_gaps import longest_gap_s
from tests.unit.stores.arrivals import database_of
from tests.unit.stores.made_letters import NOW_MS, make_letter

BLIND = View(sees_payloads=False)
WHOLE = View(sees_payloads=True)
SECRET = "4111111111111111"


def rule(kind: Any, path: str, hidden_from: Role = Role.OPERATOR) -> Redaction:
    return Redaction(id=f"{kind}{path}", kind=kind, path=path, hidden_from=hidden_from)


CAREFUL = View(sees_payloads=True, rules=[rule("body", "customer.card"), rule("header", "X-User")])


def described(body: Any, **headers: Any) -> ContentJson:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return describe_content(MessageContent(properties=Properties.of(headers=headers, app_id="shop").raw, body=raw))


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
        "body_hidden": "the token is not granted payloads",
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
            "body_hidden": None,
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
        ("error:slow", False, False),
        ("-error:slow", False, False),
        ("error_type:*4111*", False, False),
        ('error_type:"card 4111"', False, False),
        ("-error_type:T*", False, False),
        ("header.x-final-error:*4111*", False, False),
        ("header.X-Redrive-Stack:*4111*", False, False),
        ("header.MT-Fault-Message:*4111*", False, False),
        ("body.customer.0.card:4111*", False, False),
        ("body.*.*.card:4111*", False, False),
        ("body.0.customer.card:4111*", False, False),
    ],
)
def test_nobody_searches_for_what_they_don_t_see(text: str, blind: bool, careful: bool) -> None:
    filter = parse_filter(text, now_ms=NOW_MS)
    for view, allowed in ((BLIND, blind), (CAREFUL, careful), (WHOLE, True)):
        assert (view.forbids(filter) is None) is allowed
        assert (view.filter_text(text) == text) is allowed
        if not allowed:
            assert view.filter_text(text) == HIDDEN_FILTER


def test_rules_are_for_a_role_and_those_below_it(run: Run, store: Store) -> None:
    async def scenario() -> None:
        await store.redactions.set(rule("body", "card", Role.OPERATOR), who="x", now_ms=0)
        await store.redactions.set(rule("header", "deep", Role.ADMIN), who="x", now_ms=0)
        seen = {}
        for role in Role:
            view = await view_for(Caller(token_id="t", name="n", role=role, sees_payloads=True), store)
            seen[role] = (view.body(b'{"card": 1}') == b'{"card": 1}', view.headers({"deep": 1})["deep"] == 1)
        assert seen == {Role.VIEWER: (False, False), Role.OPERATOR: (False, False), Role.ADMIN: (True, False)}
        blind = await view_for(Caller(token_id="t", name="n", role=Role.VIEWER), store)
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


CARD = View(sees_payloads=True, rules=[rule("body", "customer.card")])


@pytest.mark.parametrize(
    "body",
    [
        {"customer": [{"card": SECRET}, {"card": SECRET}]},
        [{"customer": {"card": SECRET}}, {"customer": [[{"card": SECRET}]]}],
        {"customer": json.dumps({"card": SECRET})},
        {"customer": json.dumps([{"card": SECRET}])},
        {"customer": " \n" + json.dumps({"card": SECRET})},
        json.dumps({"customer": {"card": SECRET}}),
        json.dumps(json.dumps({"customer": json.dumps({"card": SECRET})})),
        {"customer": json.dumps(json.dumps({"card": SECRET}))},
        {"customer": '{"card": "4111111111111111"'},
        {"customer": '{"card": "4111111111111111", "card": 1}'},
        {"customer": '{"card": "4111111111111111"}, {"card": 1}'},
        {"customer": {"card": {"deep": [SECRET]}}},
    ],
)
def test_a_value_is_hidden_however_it_is_packed(body: Any) -> None:
    shown = CARD.body(json.dumps(body).encode())
    assert shown is None or SECRET.encode() not in shown


def test_what_is_beside_a_packed_value_stays() -> None:
    body = {"customer": json.dumps([{"card": SECRET, "name": "Ada"}, "x"]), "note": "{not json", "n": 1.50}
    shown = CARD.body(json.dumps(body).encode())
    assert shown is not None
    told = json.loads(shown)
    assert json.loads(told["customer"]) == [{"card": MASK, "name": "Ada"}, "x"]
    assert (told["note"], told["n"]) == ("{not json", 1.5)
    plain = json.dumps({"customer": "Ada", "other": '"quoted" {'}).encode()
    assert CARD.body(plain) == plain


def test_from_whom_a_value_is_hidden_errors_texts_are_hidden_too() -> None:
    letter = letter_json(make_letter(error_message=f"card {SECRET} declined"))
    whole = {
        **letter,
        "stack": f"at {SECRET}",
        "history": [{"number": 1, "at": None, "error": f"X: {SECRET}"}],
        "life": [
            {"event": str(LetterEvent.CAME_BACK), "detail": f"X: {SECRET}"},
            {"event": "resolved", "detail": "by hand"},
        ],
    }
    shown = CARD.letter(whole)
    assert SECRET not in json.dumps(shown)
    assert (shown["error"]["type"], shown["life"][1]["detail"]) == ("TimeoutError", "by hand")
    piece = {"type": f"card {SECRET}", "message": None, "status_code": 402}
    assert CARD.letter({**letter, "error": piece})["error"] == {"type": None, "message": None, "status_code": 402}
    group = CARD.group({"title": f"X: card {SECRET}", "error_type": f"card {SECRET}", "id": "g"})
    assert group == {"title": "an error", "error_type": None, "id": "g"}


def test_headers_that_tell_errors_or_hold_other_headers_are_covered() -> None:
    own = {
        "x-final-error": f"X: {SECRET}",
        "x-redrive-stack": SECRET,
        "x-redrive-history": [{"error": SECRET}],
        "X-Exception-Message": SECRET,
        "MT-Fault-Message": SECRET,
        "NServiceBus.ExceptionInfo.Message": SECRET,
        "exception-message": SECRET,
        "x-retry-count": 3,
    }
    shown = CARD.content(described({}, **own))
    assert SECRET not in json.dumps(shown)
    assert (set(shown["headers"]), shown["headers"]["x-retry-count"]) == (set(own), 3)
    kept = CAREFUL.content(described({}, **{"x-redrive-stripped": {"headers": {"X-User": SECRET, "a": 1}}}))
    assert SECRET not in json.dumps(kept)
    assert kept["headers"]["x-redrive-stripped"]["headers"]["a"] == 1
    assert WHOLE.content(described({}, **own))["headers"]["x-final-error"] == f"X: {SECRET}"


def test_over_the_api_an_operator_finds_a_hidden_card_nowhere(
    run: Run, client_for: ClientFor, put_letter: PutLetter
) -> None:
    """Every way that shows or asks something, with the card in body, headers, error, stack and group."""

    async def scenario() -> None:
        admin = await client_for(Role.ADMIN, name="root")
        body = {"kind": "body", "path": "customer.card", "hidden_from": "operator"}
        assert (await admin.post("/api/v1/redactions", json=body)).status_code == 201
        letter = await put_letter(
            body=json.dumps({"customer": [{"card": SECRET}]}).encode(),
            headers={"x-final-error": f"Declined: card {SECRET}"},
            error_type="Declined",
            error_message=f"card {SECRET}",
            stack=f"Declined: card {SECRET}",
            title=f"Declined: card {SECRET}",
        )
        olga = await client_for(Role.OPERATOR, name="olga")
        for path in (
            "/api/v1/messages",
            f"/api/v1/messages/{letter.id}",
            f"/api/v1/messages/{letter.id}/body",
            f"/api/v1/messages/{letter.id}/headers",
            "/api/v1/groups",
            f"/api/v1/groups/{letter.group_id}",
            "/dlq",
            f"/dlq/{letter.id}",
            "/api/v1/stats",
        ):
            answer = await olga.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert SECRET not in answer.text, path
        for q in (
            f"error:{SECRET}",
            SECRET,
            f"body.customer.0.card:{SECRET}",
            "error_type:*card*",
            "header.x-final-error:*",
        ):
            assert (await olga.get("/api/v1/messages", params={"q": q})).status_code == 403, q
        assert SECRET in (await admin.get(f"/api/v1/messages/{letter.id}")).text

    run(scenario())


def test_a_preview_is_what_the_role_sees_and_hides_what_is_only_tried(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        await store.redactions.set(rule("body", "customer.card", Role.OPERATOR), who="x", now_ms=0)
        await store.redactions.set(rule("header", "x-key", Role.ADMIN), who="x", now_ms=0)
        letter = await put_letter(
            body=json.dumps({"customer": {"card": SECRET, "name": "Ada"}}).encode(),
            headers={"x-key": "k3y", "x-user": "ada"},
            error_message=f"card {SECRET}",
        )
        admin = await client_for(Role.ADMIN)
        path = f"/api/v1/messages/{letter.id}"
        for role, payloads in ((Role.VIEWER, False), (Role.VIEWER, True), (Role.OPERATOR, False), (Role.ADMIN, False)):
            client = await client_for(role, payloads=payloads)
            previewed = await admin.get(f"{path}/preview", params={"role": str(role), "payloads": payloads})
            assert previewed.status_code == 200, previewed.text
            assert previewed.json() == (await client.get(path)).json(), (role, payloads)
            assert "k3y" not in previewed.text
        tried = {"role": "operator", "hide_body": "customer.name", "hide_header": "X-User"}
        shown = (await admin.get(f"{path}/preview", params=tried)).json()
        assert json.loads(shown["body"]["content"]) == {"customer": {"card": MASK, "name": MASK}}
        assert shown["headers"] == {"x-key": MASK, "x-user": MASK}
        wrong = await admin.get(f"{path}/preview", params={"role": "viewer", "hide_body": "a..b"})
        assert wrong.status_code == 422
        assert len(await store.redactions.all()) == 2
        olga = await client_for(Role.OPERATOR)
        assert (await olga.get(f"{path}/preview", params={"role": "viewer"})).status_code == 403

    run(scenario())


def test_a_header_that_is_hidden_is_not_in_the_envelope_of_a_message_either() -> None:
    """What has no room for a copy's headers is parked whole, in the body of another."""
    body = wrap_in_envelope(Properties.of(headers={"x-user": SECRET}), b"{}")
    view = View(sees_payloads=True, rules=[rule("header", "x-user")])
    assert view.body(body) is None
    assert SECRET not in json.dumps(view.content(described(body, **{"x-redrive-envelope": 1})))
    assert WHOLE.body(body) == body


HOSTILE: dict[str, Callable[[], bytes]] = {
    "the beginnings of objects": lambda: json.dumps({"customer": ["{"] * 1_500_000}).encode(),
    "the beginnings of objects with the key": lambda: json.dumps({"customer": ['{"card'] * 700_000}).encode(),
    "objects in strings": lambda: json.dumps({"customer": ['{"card":1}'] * 400_000}).encode(),
    "strings in strings": lambda: json.dumps({"customer": json.dumps(json.dumps(['{"card"'] * 200_000))}).encode(),
    "more than is looked through": lambda: b'{"customer": "' + b"x" * (HIDING_BYTES_MAX + 1) + b'"}',
}
"""Made where they are used: many MB that every worker would make to find out which tests there are."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_an_expensive_body_takes_a_bounded_time_and_shows_nothing_hidden(kind: str) -> None:
    """8 MB of beginnings of objects took half a minute."""
    body = HOSTILE[kind]()
    began_s = time.process_time()
    shown = CARD.shown_body(body)
    assert time.process_time() - began_s < 5
    assert shown == TOO_COSTLY


def test_a_text_that_can_t_lead_to_the_value_is_left_as_it_is() -> None:
    beside = {"customer": ["{", "[1, 2", '{"name": "Ada"', '{"Card": 1}', "[[[["], "card": "{"}
    body = json.dumps(beside).encode()
    assert CARD.body(body) == body
    many = json.dumps({"customer": ["{"] * 200_000}).encode()
    assert CARD.body(many) == many
    for text in ('{"card', '{"c\\u0061rd": "4111111111111111"', '["{\\"card\\": 4111111111111111', "{\\"):
        shown = CARD.body(json.dumps({"customer": text}).encode())
        assert shown == json.dumps({"customer": MASK}).encode()


@pytest.mark.parametrize(
    "path", ["", "/body", "/preview?role=viewer&payloads=true"], ids=["message", "body", "preview"]
)
def test_an_expensive_body_delays_nobody_and_is_reported_as_hidden(
    run: Run, client_for: ClientFor, put_letter: PutLetter, path: str
) -> None:
    async def scenario() -> None:
        letter = await put_letter(body=HOSTILE["the beginnings of objects with the key"]())
        admin = await client_for(Role.ADMIN)
        asked = {"kind": "body", "path": "customer.card", "hidden_from": "operator"}
        assert (await admin.post("/api/v1/redactions", json=asked)).status_code == 201
        client = admin if "preview" in path else await client_for(Role.VIEWER, payloads=True)
        answer, gap_s = await longest_gap_s(client.get(f"/api/v1/messages/{letter.id}{path}"))
        assert gap_s < 0.5
        assert "too long" in answer.json()["detail" if path == "/body" else "body_hidden"]
        assert answer.status_code == (403 if path == "/body" else 200)
        assert b'"card' not in answer.content

    run(scenario())


@pytest.mark.parametrize("size", [100, 300_000])
def test_a_long_body_is_shown_as_a_short_one_is(
    run: Run, client_for: ClientFor, put_letter: PutLetter, size: int
) -> None:
    async def scenario() -> None:
        document = {"customer": {"card": SECRET, "name": "Ada"}, "more": ["x" * 50] * (size // 50)}
        letter = await put_letter(body=json.dumps(document).encode())
        admin = await client_for(Role.ADMIN)
        asked = {"kind": "body", "path": "customer.card", "hidden_from": "operator"}
        await admin.post("/api/v1/redactions", json=asked)
        operator = await client_for(Role.OPERATOR)
        hidden = {**document, "customer": {"card": MASK, "name": "Ada"}}
        told = (await operator.get(f"/api/v1/messages/{letter.id}")).json()
        assert (json.loads(told["body"]["content"]), told["body_hidden"]) == (hidden, None)
        assert json.loads((await operator.get(f"/dlq/{letter.id}")).json()["payload"]) == hidden
        raw = await operator.get(f"/api/v1/messages/{letter.id}/body")
        assert (raw.json(), raw.headers["X-Redrive-Redacted"]) == (hidden, "true")
        edit = {"body": "{}", "why": "x"}
        refused = await operator.patch(f"/api/v1/messages/{letter.id}", json=edit, headers={"If-Match": "*"})
        assert refused.status_code == 403

    run(scenario())


@pytest.mark.parametrize("event", [LetterEvent.CAME_BACK, LetterEvent.SPENT])
def test_lifecycle_events_hide_error_texts_from_callers_without_payloads(
    event: LetterEvent, run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        async with database_of(store).write() as tx:
            seq = await tx.value("SELECT seq FROM letters WHERE id = $1", letter.id)
            await record_lifecycle(tx, [seq], event.value, now_ms=clock(), who="", detail="card 4711 was refused")
        path = f"/api/v1/messages/{letter.id}"
        assert "4711" not in (await (await client_for(Role.VIEWER)).get(path)).text
        assert "4711" in (await (await client_for(Role.VIEWER, payloads=True)).get(path)).text

    run(scenario())


def test_a_hidden_list_index_is_hidden_however_it_is_written() -> None:
    assert overlaps(("cards", "00", "number"), ("cards", "0", "number"))
    assert overlaps(("cards", "007"), ("cards", "7"))
    assert not overlaps(("cards", "1", "number"), ("cards", "10", "number"))
    assert not overlaps(("cards", "0", "x"), ("cards", "", "y"))
