"""Letters of one kind share a group; what differs between messages does not split it, what differs in kind does."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from redrive.core import PlainLetter
from redrive.records import Explanation, explain, normalise_message
from redrive.records.understanding.stacks import top_frame, top_lines
from tests.unit.records import framework_headers as frameworks


def parked(error: str, stack: str | None = None, queue: str = "orders") -> Explanation:
    headers: dict[str, Any] = {"x-redrive-reason": "attempts", "x-final-error": error, "x-original-queue": queue}
    if stack is not None:
        headers["x-redrive-stack"] = stack
    return explain(PlainLetter(queue="dlq", headers=headers), dlq="dlq", now_ms=1)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("payment took 3000 ms", "payment took <n> ms"),
        ("payment took 3000ms", "payment took <n>ms"),
        ("no order 6f1e2c8a-1b2c-4d5e-8f90-a1b2c3d4e5f6", "no order <uuid>"),
        ("at 2026-11-01T12:00:00.5Z", "at <time>"),
        ("connect to 10.0.0.7:443 refused", "connect to <n> refused"),
        ("key 'customer' and \"name\" missing", "key <text> and <text> missing"),
        ("can't find the customer's order", "can't find the customer's order"),
        ("object at 0x7f3a2b", "object at <hex>"),
        ("order ORD-A17 for a@b.example", "order ORD-<id> for <email>"),
        ("balance -5.20", "balance <n>"),
        ("two\n  lines", "two lines"),
    ],
)
def test_what_varies_in_a_message_becomes_a_placeholder(text: str, normal: str) -> None:
    assert normalise_message(text) == normal


@given(st.integers(0, 10**20), st.integers(0, 10**20), st.uuids(), st.uuids(), st.text("abc xyz", max_size=20))
def test_numbers_and_ids_do_not_split_a_group(one: int, other: int, uuid: UUID, second: UUID, text: str) -> None:
    first = parked(f"Boom: order {one} of {uuid} is '{text}'")
    again = parked(f"Boom: order {other} of {second} is 'else'")
    assert first.group_id == again.group_id
    assert first.group_title == again.group_title


words = st.text(st.characters(categories=["L"]), min_size=1, max_size=20)


@given(words, words, words)
def test_another_error_type_or_queue_is_another_group(one: str, other: str, message: str) -> None:
    assume(one != other)
    assert parked(f"{one}: {message}").group_id != parked(f"{other}: {message}").group_id
    assert parked(f"Boom: {message}", queue=one).group_id != parked(f"Boom: {message}", queue=other).group_id


def python_stack(line: int, root: str = "/app") -> str:
    return (
        f'  File "{root}/shop/orders.py", line {line}, in place\n    pay(order)\n'
        f'  File "{root}/venv/lib/python3.11/site-packages/httpx/_client.py", line 9, in send\n    raise\n'
    )


def test_the_same_place_in_the_code_is_one_group_whatever_the_message_and_line() -> None:
    one = parked("TimeoutError: no answer from a", python_stack(10))
    other = parked("TimeoutError: quite another text", python_stack(12, root="/srv/release"))
    assert one.group_id == other.group_id
    assert one.group_id != parked("TimeoutError: no answer from a").group_id
    assert one.group_id != parked("KeyError: no answer from a", python_stack(10)).group_id


@pytest.mark.parametrize(
    ("stack", "frame"),
    [
        (python_stack(10), "shop/orders.py place"),
        (frameworks.DOTNET_STACK, "Acme.Orders.PaymentClient.<Pay>d__.MoveNext"),
        (
            frameworks.JAVA_STACK.partition("Caused by")[2],
            "com.acme.orders.Payments$$FastClassBySpringCGLIB$$.pay",
        ),
        ("Error: x\n    at pay (/app/src/pay.js:10:5)\n    at node:internal/process:1:1", "pay src/pay.js"),
        ("Error: x\n    at /app/src/pay.js:10:5", "src/pay.js"),
        ("panic: x\n\ngoroutine 1 [running]:\nmain.place(0xc000)\n\t/app/main.go:42 +0x1d", "app/main.go"),
        ("   at System.Foo.Bar()\n", "System.Foo.Bar"),
        ("no frames at all", None),
    ],
)
def test_the_frame_that_tells_is_the_application_s_innermost(stack: str, frame: str | None) -> None:
    assert top_frame(stack) == frame


def test_the_top_lines_are_those_about_the_failure() -> None:
    assert top_lines(python_stack(1), 1) == "raise"
    assert top_lines("Boom\n  at a\n  at b", 2) == "Boom\nat a"


def test_without_an_error_the_reason_and_the_type_make_the_group() -> None:
    def rejected(kind: str, reason: str = "rejected") -> Explanation:
        headers = {"x-death": [{"queue": "orders", "reason": reason, "count": 1}]}
        letter = PlainLetter(queue="dlq", headers=headers, properties={"type": kind})
        return explain(letter, dlq="dlq", now_ms=1)

    assert rejected("order.placed").group_title == "rejected in orders (order.placed)"
    assert rejected("order.placed").group_id == rejected("order.placed").group_id
    assert len({rejected(a, b).group_id for a in ("x", "y") for b in ("rejected", "expired")}) == 4


@given(st.text(max_size=3000))
def test_normalising_ends_for_any_text_and_is_one_short_line(text: str) -> None:
    normal = normalise_message(text)
    assert len(normal) <= 200
    assert "\n" not in normal
    top_frame(text)
