"""Dead letters as strangers make them, drawn by a seed: odd Unicode, look-alikes, what means something to SQL, JSON and
what only looks like it, values beyond all bounds."""

import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

from redrive.records import BODY_BYTES_MAX, DeadLetter, MessageContent, Status
from redrive.stores import ExportedLetter
from redrive.wire import Properties
from tests.unit.stores.made_letters import NOW_MS, make_letter

LARGE = BODY_BYTES_MAX + 1_000
NAMES = ("orders", "Orders", "orders.eu", "or_ers%", "or[d]ers?", "ORDERS", "*", "", "room", "a.b-c_d", "q\\1")
ODD = (
    *("straße", "STRASSE", "Straẞe", "İstanbul", "istanbul", "ISTANBUL", "ıstanbul", "i̇stanbul"),
    *("café", "cafe\u0301", "CAFÉ", "école", "e\u0301cole", "ΟΔΟΣ", "οδος", "οδοσ", "ΑΣ.b", "ﬁle", "file", "ǅ", "ŉ"),
    *(
        "日本語",
        "дом",
        "ДОМ",
        "Ünïcödé",
        "\u202eabc",
        "👩\u200d👩\u200d👧",
        "\U0001e900\U0001e901",
        "\U0001e922\U0001e923",
    ),
    *("\uab70\u13a0", "½ cup", "\ufdfa", "\u0345α", "ͅ", "a\u0338b", ">\u0338", "K", "ſ", "ª", "ªcut", "cut", "\uffff"),
    *("nul\x00byte", "half\ud800pair", "\ufffd", "tab\tnew\nline", "x" * 100, "x" * 64, "x" * 65, "--", "…", " "),
    *("'; DROP TABLE letters; --", "%", "_", "100%", "a_b", "\\", "\\%", '"quoted"', "it's", "$1", "?1", ":a & b | !c"),
    *(
        "42",
        "42.0",
        "0042",
        "-0",
        "1e5",
        "true",
        "null",
        "4*2",
        "order-17",
        "room",
        "classroom",
        "Room 429",
        "HTTP 429",
    ),
)
ERROR_TYPES = (None, "TimeoutError", "System.TimeoutException", "Ошибка", "K\u00e4se_Error", "HTTPStatusError", "room")
HEADER_NAMES = ("x-tenant", "X-Tenant", "x-a", "straße", "STRASSE", "x-death", "x-redrive-stack", "x-first-seen", "n")


def draw_text(luck: Random) -> str:
    """One of the odd ones, or a few together."""
    if luck.random() < 0.6:
        return luck.choice(ODD)
    return luck.choice((" ", "", ".", ": ", "\n")).join(luck.choices((*ODD, *NAMES), k=luck.randrange(1, 4)))


def draw_letter(luck: Random, number: int) -> ExportedLetter:
    """A whole one, as another store would have exported it."""

    def maybe(text: str) -> str | None:
        return None if luck.random() < 0.3 else text

    def name() -> str:
        return luck.choice(NAMES) if luck.random() < 0.7 else draw_text(luck)

    error_type = luck.choice(ERROR_TYPES)
    queue = name()
    body, headers = draw_body(luck), draw_headers(luck)
    letter = make_letter(
        number,
        status=luck.choice(list(Status)),
        vhost=luck.choice(("/", "other")),
        queue=queue,
        dlq=name(),
        exchange=name(),
        routing_key=name(),
        reason=luck.choice(("rejected", "expired", "error", "attempts")),
        error_type=error_type,
        error_message=maybe(draw_text(luck)),
        status_code=luck.choice((None, 404, 429, 503)),
        stack=luck.choice((None, "Boom\n  at room\n  at b\n  at deep", 'File "a.py", line 7\n  raise room')),
        attempts=luck.choice((None, 0, 1, 4)),
        message_id=maybe(name()),
        correlation_id=maybe(name()),
        type=maybe(name()),
        service=maybe(name()),
        group_id=f"{luck.randrange(2)}/{error_type}",
        size_bytes=len(body),
        dead_at_ms=NOW_MS + luck.choice((0, 1, 2, -86_400_000)),
        collected_at_ms=NOW_MS + luck.choice((0, 1)),
        redrives=luck.choice((0, 1, 2)),
        returns=luck.choice((0, 1, 3)),
        is_poison=luck.random() < 0.3,
        is_edited=luck.random() < 0.3,
        due_at_ms=luck.choice((None, NOW_MS, NOW_MS + 1)),
        copy_of=maybe("x"),
        operation_id=maybe(name()),
    )
    return ExportedLetter(
        letter=letter,
        content=MessageContent(properties=draw_properties(luck, headers), body=body),
        history=(),
        earlier_contents=(),
        edits=(),
        lifecycle=(),
        group_title=f"{error_type} in {queue}: room 429",
    )


def draw_properties(luck: Random, headers: dict[str, Any]) -> bytes:
    """Properties with the headers; now and then such that nobody can read."""
    if luck.random() < 0.05:
        return b"\xff\xff\x00"
    return Properties.of(headers=headers).raw


def draw_headers(luck: Random) -> dict[str, Any]:
    """Headers of any type."""
    return {name: _header_value(luck, 0) for name in luck.sample(HEADER_NAMES, luck.randrange(4))}


def draw_body(luck: Random) -> bytes:
    """JSON mostly, in every way it can be written; else anything."""
    kind = luck.random()
    if kind < 0.08:
        return luck.choice((b"", b"\xff\xfe", b"{", b"plain room 42", b"[" * 5_000, b'{"a": 1} trailing', b"\x00\x01"))
    document = _document(luck, 0)
    ascii_only = luck.random() < 0.5
    # Half a pair is no UTF-8 and can only be written as an escape.
    text = json.dumps(document, ensure_ascii=True) if ascii_only else json.dumps(document, ensure_ascii=False)
    text = _written_as_others_do(luck, text)
    raw = text.encode("utf-8", "replace")
    if kind < 0.16:
        return gzip.compress(raw, mtime=0)
    if kind < 0.2:
        return text.encode("utf-16", "replace")
    if kind < 0.24:
        return raw + b"\xff"
    if kind < 0.3:
        # A value where no index reaches.
        before = "room " * (LARGE // 5)
        return json.dumps({"before": before, "a": document, "b": draw_text(luck)}).encode("utf-8", "replace")
    if kind < 0.33:
        return ('{"a": ["' + '", "'.join(f"w{n}" for n in range(17_000)) + '"], "b": "room"}').encode()
    if kind < 0.36:
        return json.dumps({"a": "again " * 400 + "and the end", "b": 42}).encode()
    if kind < 0.4:
        return b" \n" + raw + b"\t "
    return raw


def _written_as_others_do(luck: Random, text: str) -> str:
    """The same document, perhaps with numbers as no Python writes them, a key twice, a mark of its byte order."""
    if luck.random() < 0.2:
        text = text.replace(": 0", ": -0").replace("42.0", "42.000").replace("1e+300", "1E9999")
    if luck.random() < 0.1 and text.startswith("{"):
        text = '{"a": "an earlier one", ' + text[1:]
    return "\ufeff" + text if luck.random() < 0.1 else text


def _document(luck: Random, depth: int) -> Any:
    kind = luck.random()
    if depth > 3 or kind < 0.35:
        return _scalar(luck)
    if kind < 0.75 or depth == 0:
        keys = luck.sample(("a", "b", "0", "*", "", "straße", "strange.key", "a b"), luck.randrange(1, 5))
        return {key: _document(luck, depth + 1) for key in keys}
    return [_document(luck, depth + 1) for _ in range(luck.randrange(4))]


def _scalar(luck: Random) -> Any:
    kind = luck.random()
    if kind < 0.65:
        return draw_text(luck)
    return luck.choice(
        (
            *(42, 42.0, -0.0, 0, True, False, None, 1e300, 2**63, 2**64, 10**30, -1, 0.1, 12345678901234567890),
            *(-(10**25), 10**4_000, float("nan"), float("inf"), -float("inf")),
        )
    )


def _header_value(luck: Random, depth: int) -> Any:
    kind = luck.random()
    if kind < 0.5:
        return draw_text(luck).encode("utf-8", "replace").decode()
    if kind < 0.7 and depth < 2:
        return [_header_value(luck, depth + 1) for _ in range(luck.randrange(3))]
    if kind < 0.8 and depth < 2:
        return {"key": _header_value(luck, depth + 1), "reason": "room"}
    return luck.choice(
        (42, -7, 1.5, True, False, None, b"raw \xff bytes", Decimal("3.10"), datetime(2026, 11, 1, 12, tzinfo=UTC))
    )


def texts_of(letter: DeadLetter) -> list[str]:
    """What a filter on its row may ask for."""
    texts = (letter.queue, letter.dlq, letter.routing_key, letter.error_type, letter.error_message, letter.service)
    return [text for text in texts if text]
