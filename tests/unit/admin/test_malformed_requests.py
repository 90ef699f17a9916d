"""Messages and requests that try to break the API: what is stored comes out as it went in and breaks nothing around it;
what is asked is answered or refused, never with an error of ours."""

import asyncio
import base64
import io
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from redrive.admin import Services, SharedBroker
from redrive.records import MessageContent, Role, storable
from redrive.serving.request_monitor import RequestMonitor
from redrive.stores import Store
from redrive.stores.cursors import write_cursor
from redrive.telemetry import Log, LogFormat, Telemetry
from tests.unit.admin.conftest import ClientFor, Clock, PutLetter, Run, make_token
from tests.unit.admin.seeding import ask, operate, seed
from tests.unit.stores.made_letters import make_exported, make_letter, put

TEXTS = {
    "line ends": "a\r\nSet-Cookie: stolen=1\r\n\r\n<html>",
    "other line ends": "a\x0b\x0c\x1c\x1d\x85\u2028\u2029b\rc",
    "script": "</script><script>alert(1)</script><!-- ]]>",
    "escapes": "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b0m\x08\x7f",
    "json": '"}],"next":null}\\"\\u0000\\',
    "prometheus": 'x"} 1\nredrive_dead_letters{status="pending"} 999\n#',
    "events": "x\n\nevent: stats\ndata: {}\n\n",
    "right to left": "\u202egnp.exe\ufeff\u200b",
    "unicode": "ünï — \U0001f4a9 \ufffe",
    "filter": 'orders" queue:* (OR) body.x:*',
}
KNOWN_HEADERS = {
    "cache-control",
    "content-disposition",
    "content-length",
    "content-security-policy",
    "content-type",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "etag",
    "location",
    "referrer-policy",
    "retry-after",
    "www-authenticate",
    "allow",
    "x-accel-buffering",
    "x-content-type-options",
    "x-frame-options",
    "x-redrive-redacted",
}


@pytest.fixture
def services(services: Services, run: Run) -> Iterator[Services]:
    """As the room's, but nobody waits for the broker."""
    broker = SharedBroker(services.connections, services.store, patience_s=0.01)
    yield replace(services, broker=broker)
    run(broker.close())


def check_answer(answer: httpx.Response) -> None:
    """Headers that only we have written; JSON that every reader takes."""
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    assert set(answer.headers) <= KNOWN_HEADERS
    for value in answer.headers.values():
        assert value.isascii()
        assert value.isprintable()
    if "json" in answer.headers.get("content-type", ""):
        answer.content.decode()
        json.loads(answer.content, parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("role", [Role.VIEWER, pytest.param(Role.ADMIN, marks=pytest.mark.slow)])
def test_a_stored_text_breaks_no_answer(
    run: Run, app: FastAPI, services: Services, store: Store, clock: Clock, put_letter: PutLetter, name: str, role: Role
) -> None:
    text = TEXTS[name]

    async def scenario() -> None:
        letter = await put_letter(
            queue=text,
            dlq=f"{text}.parked",
            exchange=text,
            routing_key=text,
            message_id=text,
            correlation_id=text,
            type=text,
            service=text,
            error_type=text,
            error_message=text,
            stack=text,
            reason=text,
            group_id="hostile",
            status_reason=text,
            title=f"{text}: {text}",
            body={text: text},
            headers={text[:50]: text},
        )
        operation = await operate(services, (letter.id,))
        token = await make_token(store, "reader", role, now_ms=clock())
        headers = {"Authorization": f"Bearer {token}"}
        answers = {}
        for path in (
            "/api/v1/messages",
            f"/api/v1/messages/{letter.id}",
            f"/api/v1/messages/{letter.id}/body",
            f"/api/v1/messages/{letter.id}/headers",
            "/api/v1/groups",
            "/api/v1/groups/hostile",
            "/api/v1/redrives",
            f"/api/v1/redrives/{operation.id}/items",
            "/api/v1/stats",
            "/api/v1/queues",
            "/api/v1/audit",
            "/api/v1/events",
            "/dlq",
            "/dlq/stats",
            f"/dlq/{letter.id}",
            "/admin/dlq/queues",
            "/metrics",
        ):
            answer = answers[path] = await ask(app, "GET", path, headers=headers)
            check_answer(answer)
            assert answer.status_code == (200 if role is Role.ADMIN else answer.status_code), (path, answer.text)
        shown = answers["/api/v1/messages"].json()["messages"][0]
        # Columns hold no character that one of the databases reads as another; headers and body are as they came.
        stored = storable(text)
        assert (shown["queue"], shown["routing_key"], shown["message_id"]) == (stored, stored, stored)
        assert stored in answers["/api/v1/stats"].json()["by_queue"]
        check_metrics(answers["/metrics"].text)
        check_events(answers["/api/v1/events"].text)
        if role is Role.ADMIN:
            whole = answers[f"/api/v1/messages/{letter.id}"].json()
            assert whole["error"]["message"] == whole["stack"] == stored
            assert whole["headers"] == {text[:50]: text}
            raw = answers[f"/api/v1/messages/{letter.id}/body"]
            assert json.loads(raw.content) == {text: text}
            assert raw.headers["content-type"] == "application/octet-stream"
            assert raw.headers["content-disposition"] == f'attachment; filename="{letter.id}.bin"'

    run(scenario())


def check_metrics(text: str) -> None:
    """Each line is a comment or one sample of ours."""
    for line in text.removesuffix("\n").split("\n"):
        assert line.startswith("# ") or re.fullmatch(r'redrive_\w+\{(\w+="([^"\\]|\\.)*",?)+\} \d+', line), line


def check_events(text: str) -> None:
    """Each line is a field of ours, and each event's data is JSON."""
    for line in re.split(r"\r\n|\r|\n", text):
        assert not line or re.fullmatch(r"(id: \d+|event: (stats|redrive)|data: .*|retry: \d+|: still here)", line), (
            line
        )
        if line.startswith("data: "):
            assert json.loads(line[6:]), line


BODIES = {
    "nothing": b"",
    "no UTF-8": b"\xff\xfe\x00\xc3\x28",
    "NUL": b"a\x00b",
    "a million brackets": b"[" * 1_000_000,
    "deep JSON": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "constants": b'{"a": NaN, "b": -Infinity, "c": 1e999}',
    "a huge number": b'{"a": ' + b"9" * 100_000 + b"}",
    "half a surrogate": b'{"a": "\\ud800", "card": "4711"}',
    "a key twice": b'{"card": "4711", "card": "x"}',
    "UTF-16": '{"card": "4711"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"card": "4711"}',
    "HTML": b"<html><script>alert(1)</script>",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_stored_body_breaks_no_answer_and_comes_out_byte_for_byte(
    run: Run, app: FastAPI, client_for: ClientFor, put_letter: PutLetter, name: str
) -> None:
    async def scenario() -> None:
        letter = await put_letter(body=BODIES[name])
        admin, viewer = await client_for(Role.ADMIN), await client_for(Role.VIEWER)
        granted = await client_for(Role.VIEWER, payloads=True)
        raw = await admin.get(f"/api/v1/messages/{letter.id}/body")
        assert (raw.status_code, raw.content) == (200, BODIES[name])
        assert raw.headers["content-type"] == "application/octet-stream"
        assert raw.headers["x-content-type-options"] == "nosniff"
        for path in (f"/api/v1/messages/{letter.id}", f"/dlq/{letter.id}", "/api/v1/messages?q=body.a:1"):
            answer = await admin.get(path)
            assert answer.status_code == 200
            check_answer(answer)
        hidden = (await viewer.get(f"/api/v1/messages/{letter.id}")).json()
        assert (hidden["body"], hidden["redacted"]) == (None, True)
        # With a rule on what may be in it nobody gets past it by writing the body in another way.
        made = await admin.post("/api/v1/redactions", json={"kind": "body", "path": "card", "hidden_from": "viewer"})
        assert made.status_code == 201
        answer = await granted.get(f"/api/v1/messages/{letter.id}")
        check_answer(answer)
        assert "4711" not in answer.text
        answer = await granted.get(f"/api/v1/messages/{letter.id}/body")
        assert answer.status_code in (200, 403)
        assert b"4711" not in answer.content
        assert b"4\x007\x001\x001\x00" not in answer.content

    run(scenario())


def _table(*entries: tuple[bytes, bytes]) -> bytes:
    """Properties that are headers alone, of names and typed values as they are on the wire."""
    table = b"".join(bytes((len(name),)) + name + value for name, value in entries)
    return struct.pack(">HI", 0x2000, len(table)) + table


def _long(text: bytes) -> bytes:
    return b"S" + struct.pack(">I", len(text)) + text


PROPERTIES = {
    "a megabyte": _table((b"x-big", _long(b"x" * 1_000_000))),
    "no UTF-8": _table((b"x-\xff\xfe", _long(b"\xff\x00\xc3"))),
    "a name twice": _table((b"x-user", _long(b"4711")), (b"x-user", _long(b"b"))),
    "line ends": _table((b"x\r\nSet-Cookie: a", _long(b"b\r\n\r\nc"))),
    "constants": _table(
        (b"nan", b"d" + struct.pack(">d", float("nan"))), (b"inf", b"f" + struct.pack(">f", float("inf")))
    ),
    "big numbers": _table((b"l", b"l" + struct.pack(">q", -(2**63))), (b"T", b"T" + b"\xff" * 8)),
    "type and entries": _table((b"type", _long(b"4711")), (b"entries", _long(b"4711"))),
    "type and a table": _table(
        (b"type", _long(b"table")), (b"entries", b"F" + struct.pack(">I", 9) + b"\x03key" + b"I\x00\x00\x12\x67")
    ),
    "malformed": b"\x20\x00\x00\x00\x00\x05\xff",
    "nothing": b"",
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_stored_headers_break_no_answer_and_show_a_viewer_no_value(
    run: Run, client_for: ClientFor, store: Store, name: str
) -> None:
    async def scenario() -> None:
        exported = make_exported(make_letter(1))
        await put(store, [replace(exported, content=MessageContent(properties=PROPERTIES[name], body=b"{}"))])
        id = exported.letter.id
        for role in (Role.ADMIN, Role.VIEWER):
            client = await client_for(role)
            for path in (f"/api/v1/messages/{id}", f"/api/v1/messages/{id}/headers", f"/dlq/{id}"):
                answer = await client.get(path)
                check_answer(answer)
                assert answer.status_code == (403 if role is Role.VIEWER and "/headers" in path else 200)
                if role is Role.VIEWER:
                    assert "4711" not in answer.text
                    assert len(answer.content) < 10_000
                    assert set(_values(answer.json().get("headers"))) <= {None}

    run(scenario())


def _values(headers: Any) -> list[Any]:
    if isinstance(headers, dict):
        return list(headers.values())
    return [entry[1] for entry in headers or []]


IDS = {
    "dots": "%2e%2e",
    "a way up": "..%2f..%2fapi%2fv1%2ftokens",
    "a slash": "a%2Fb",
    "NUL": "a%00b",
    "line ends": "a%0d%0aSet-Cookie:%20x=1",
    "no UTF-8": "%ff%fe",
    "half a surrogate": "%ed%a0%80",
    "unicode": "%F0%9F%92%A9",
    "very long": "a" * 50_000,
    "a percent sign": "%25",
    "a question mark": "%3f%23",
    "SQL": "'%20OR%201=1--",
    "a star": "*",
    "digits of elsewhere": "%D9%A1%D9%A2",
    "nothing but dashes": "-",
}
PATHS = (
    "/api/v1/messages/{id}",
    "/api/v1/messages/{id}/body",
    "/api/v1/groups/{id}",
    "/api/v1/redrives/{id}",
    "/api/v1/redrives/{id}/items",
    "/api/v1/tokens/{id}",
    "/dlq/{id}",
)


@pytest.mark.parametrize("name", IDS)
def test_a_strange_id_is_not_there(run: Run, app: FastAPI, store: Store, clock: Clock, name: str) -> None:
    async def scenario() -> None:
        token = await make_token(store, "ada", Role.ADMIN, now_ms=clock())
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        for path in PATHS:
            answer = await ask(app, "GET", path.format(id=IDS[name]), headers=headers)
            check_answer(answer)
            assert answer.status_code in (404, 422), path
            assert len(answer.content) < 200_000
        for method, path, body in (
            ("POST", "/api/v1/messages/{id}/resolve", b'{"why": "x"}'),
            ("DELETE", "/api/v1/messages/{id}", b""),
            ("DELETE", "/api/v1/redactions/{id}", b""),
            ("DELETE", "/api/v1/rules/queue:{id}", b""),
            ("POST", "/api/v1/redrives/{id}/cancel", b""),
            ("POST", "/dlq/{id}/retry", b""),
            ("GET", "/admin/dlq/queues/{id}/messages", b""),
            ("POST", "/admin/dlq/queues/{id}/re-drive", b""),
        ):
            answer = await ask(app, method, path.format(id=IDS[name]), headers=headers, body=body)
            check_answer(answer)
            assert answer.status_code in (404, 405, 422, 503), (path, answer.text)

    run(scenario())


@pytest.mark.parametrize(
    "path",
    [
        "//api/v1/messages",
        "/api//v1/messages",
        "/api/v1/messages/",
        "/api/v1/./messages",
        "/api/v1/../v1/messages",
        "/%61pi/v1/messages%00",
        "/docs/..%2fapi/v1/tokens",
        "/healthz/../api/v1/tokens",
        "/healthz%2f",
        "/healthz%00",
        "/healthz;/api/v1/tokens",
        "/metrics/",
        "/METRICS",
        "/openapi.json/",
        "/api/v1/tokens%20",
        "/api/v1/messages/resolve/../../tokens",
    ],
)
def test_a_path_that_is_written_strangely_opens_nothing(
    run: Run, app: FastAPI, store: Store, clock: Clock, path: str
) -> None:
    async def scenario() -> None:
        answer = await ask(app, "GET", path)
        check_answer(answer)
        assert answer.status_code == 401
        token = await make_token(store, "ada", Role.VIEWER, now_ms=clock())
        answer = await ask(app, "GET", path, headers={"Authorization": f"Bearer {token}"})
        check_answer(answer)
        assert answer.status_code == 404

    run(scenario())


def test_a_queue_with_slashes_in_its_name_is_reached_and_no_other(
    run: Run, client_for: ClientFor, store: Store
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.OPERATOR, queues=("a/b*",))
        for name, status in (("a%2Fb", 200), ("a%2Fb%2F..%2Fc", 200), ("c", 404), ("a", 404), ("..%2Fc", 404)):
            answer = await client.put(f"/api/v1/rules/queue:{name}", json={})
            check_answer(answer)
            assert answer.status_code == status, name
        assert [one.scope for one in await store.rules.all()] == ["queue:a/b", "queue:a/b/../c"]

    run(scenario())


REQUESTS = {
    "no JSON": b"{",
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"x"',
    "a million brackets": b"[" * 900_000,
    "deep": b'{"why":' * 50_000 + b"1" + b"}" * 50_000,
    "a huge number": b'{"why": "x", "limit": ' + b"9" * 10_000 + b"}",
    "infinity": b'{"why": "x", "rate_per_s": Infinity, "q": ""}',
    "no number": b'{"why": "x", "settle_s": NaN, "q": ""}',
    "beyond doubles": b'{"why": "x", "rate_per_s": 1e999, "q": ""}',
    "no UTF-8": b'{"why": "\xff"}',
    "NUL": b'{"why": "a\\u0000b", "q": ""}',
    "half a surrogate": b'{"why": "\\ud800", "q": ""}',
    "half a surrogate in a key": b'{"\\ud800": 1, "why": "x", "q": ""}',
    "a field too many": b'{"why": "x", "q": "", "__proto__": {}}',
    "other types": b'{"why": 1, "q": 2, "ids": "x", "limit": "1"}',
    "a true limit": b'{"why": "x", "q": "", "limit": true}',
    "many ids": json.dumps({"why": "x", "ids": ["x"] * 10_001}).encode(),
    "ids of any kind": json.dumps({"why": "x", "ids": ["", "\0", "../..", "é", "a" * 10_000]}).encode(),
    "a filter without an end": json.dumps({"why": "x", "q": '"' * 5_000}).encode(),
    "a deep filter": json.dumps({"why": "x", "q": "(" * 9_000}).encode(),
    "a long path": json.dumps({"why": "x", "q": "body." + "a." * 4_000 + "a:1"}).encode(),
    "many terms": json.dumps({"why": "x", "q": "a " * 5_000}).encode(),
    "many stars": json.dumps({"why": "x", "q": "queue:" + "*a" * 4_000}).encode(),
}
CHANGES = (
    "POST /api/v1/messages/resolve",
    "POST /api/v1/messages/delete",
    "POST /api/v1/redrives",
    "POST /api/v1/messages/{id}/resolve",
    "PATCH /api/v1/messages/{id}",
    "PUT /api/v1/rules/queue:orders",
    "POST /api/v1/tokens",
    "POST /api/v1/redactions",
    "POST /dlq/{id}/resolve",
    "POST /api/v1/groups/timeouts/notes",
)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_is_not_as_documented_is_refused_and_changes_nothing(
    run: Run, app: FastAPI, store: Store, clock: Clock, put_letter: PutLetter, name: str
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        token = await make_token(store, "ada", Role.ADMIN, now_ms=clock())
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "If-Match": '"1"'}
        for change in CHANGES:
            method, path = change.split(" ")
            answer = await ask(app, method, path.format(id=letter.id), headers=headers, body=REQUESTS[name])
            check_answer(answer)
            if answer.status_code == 200:
                assert answer.json()["done"] == 0, (change, answer.text)
            else:
                assert 400 <= answer.status_code < 500, (change, answer.text)
        found = await store.letters.get(letter.id)
        assert found == letter

    run(scenario())


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "é"],
)
def test_another_content_type_is_refused(
    run: Run, app: FastAPI, store: Store, clock: Clock, put_letter: PutLetter, content_type: str
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        token = await make_token(store, "ada", Role.ADMIN, now_ms=clock())
        headers = {"Authorization": f"Bearer {token}"}
        if content_type:
            headers["Content-Type"] = content_type
        path = f"/api/v1/messages/{letter.id}/resolve"
        answer = await ask(app, "POST", path, headers=headers, body=b'{"why": "x"}')
        check_answer(answer)
        assert answer.status_code == 422
        assert await store.letters.get(letter.id) == letter

    run(scenario())


def test_of_a_key_that_is_there_twice_the_last_one_counts(
    run: Run, app: FastAPI, store: Store, clock: Clock, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        token = await make_token(store, "ada", Role.ADMIN, now_ms=clock())
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = b'{"why": "one", "why": "two"}'
        answer = await ask(app, "POST", f"/api/v1/messages/{letter.id}/resolve", headers=headers, body=body)
        assert (answer.status_code, answer.json()["status_reason"]) == (200, "two")

    run(scenario())


CURSORS = {
    "nothing": "",
    "no base64": "é!",
    "half of one": "WyJ",
    "another list's": write_cursor("elsewhere", (1, 2)),
    "too many numbers": write_cursor("letters", (1, 2, 3, 4, 5)),
    "large numbers": write_cursor("letters", (2**62, 2**62)),
    "numbers beyond the database's": base64.urlsafe_b64encode(b'["letters",99999999999999999999,1]').decode(),
    "no numbers": base64.urlsafe_b64encode(b'["letters","x",null]').decode(),
    "a table": base64.urlsafe_b64encode(b'{"letters":1}').decode(),
    "deep": base64.urlsafe_b64encode(b"[" * 700).decode(),
    "true": base64.urlsafe_b64encode(b'["letters",true,false]').decode(),
    "exponents": base64.urlsafe_b64encode(b'["operations",1e400]').decode(),
    "too long": "a" * 1_001,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CURSORS)
def test_a_cursor_of_ones_own_making_is_refused_or_only_a_place(
    run: Run, client_for: ClientFor, services: Services, put_letter: PutLetter, name: str
) -> None:
    async def scenario() -> None:
        seeded = await seed(services, put_letter)
        whole = await client_for(Role.ADMIN)
        limited = await client_for(Role.VIEWER, queues=("payments",))
        for path in (
            "/api/v1/messages",
            "/api/v1/messages?q=card",
            "/api/v1/groups",
            "/api/v1/groups?order=count",
            "/api/v1/redrives",
            f"/api/v1/redrives/{seeded.operations[0]}/items",
            "/api/v1/audit",
            "/dlq",
        ):
            for client in (whole, limited):
                answer = await client.get(path, params={**httpx.URL(path).params, "cursor": CURSORS[name]})
                check_answer(answer)
                assert answer.status_code in (200, 403, 404, 422), (path, answer.text)
                if client is limited and answer.status_code == 200:
                    assert not [id for id in seeded.letters + seeded.operations if id in answer.text]

    run(scenario())


def test_a_cursor_made_by_a_wider_token_shows_a_limited_one_nothing_more(
    run: Run, client_for: ClientFor, services: Services, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        seeded = await seed(services, put_letter)
        whole = await client_for(Role.ADMIN)
        limited = await client_for(Role.VIEWER, queues=("payments",))
        page = (await whole.get("/api/v1/messages", params={"limit": 1, "order": "oldest"})).json()
        answer = await limited.get("/api/v1/messages", params={"cursor": page["next"], "order": "oldest"})
        assert {one["id"] for one in answer.json()["messages"]} == set(seeded.others)

    run(scenario())


@pytest.mark.parametrize("form", ["json", "text"])
def test_nothing_that_was_sent_or_stored_can_write_a_line_of_its_own_into_the_log(
    run: Run, app: FastAPI, store: Store, clock: Clock, put_letter: PutLetter, form: LogFormat
) -> None:
    stream = io.StringIO()
    telemetry = Telemetry(Log(stream, form=form, colour=False))
    secret = "4711-0815"

    async def scenario() -> None:
        around: Any = RequestMonitor(app, observer=telemetry, stopping=asyncio.Event())
        letter = await put_letter(body={"card": secret}, headers={"x-card": secret}, error_message=secret)
        token = await make_token(store, "ada", Role.OPERATOR, now_ms=clock())
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        asked = 0
        for path in (
            "/a%0d%0a%7b%22event%22%3a%22forged%22%7d",
            "/a%0a%1b%5b2J%c2%85%e2%80%a8b",
            "/%00%ff",
            f"/api/v1/messages/{letter.id}",
            f"/api/v1/messages?q=body.card:{secret}",
            f"/api/v1/messages?q={secret}&%0a%0d=1",
            f"/api/v1/messages?q=%28{secret}",
        ):
            await ask(around, "GET", path, headers=headers)
            asked += 1
        patch = json.dumps({"why": "x", "body": secret, "set_headers": {"x": secret}}).encode()
        for name in ("PATCH", "BREW", "GET\r\nX"):
            await ask(around, name, f"/api/v1/messages/{letter.id}", headers=headers, body=patch)
            asked += 1
        await asyncio.to_thread(telemetry.close)
        lines = stream.getvalue().split("\n")
        assert lines.pop() == ""
        assert len(lines) == asked
        for line in lines:
            assert line.isprintable(), line
            assert secret not in line
            assert token not in line
        if form == "json":
            assert {json.loads(line)["event"] for line in lines} == {"admin.answered"}

    run(scenario())
