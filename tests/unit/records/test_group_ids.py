"""Letters of one kind share a group; what differs between messages does not split it, what differs in kind does."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from redrive.core import PlainMessage, describe_error
from redrive.records import Explanation, explain, normalise_message
from redrive.records.explanations.framework_headers import FrameworkReport
from redrive.records.explanations.group_ids import identify_group
from redrive.records.explanations.stack_traces import top_frame, top_lines
from tests.unit.records import sample_headers as frameworks


def parked(error: str, stack: str | None = None, queue: str = "orders") -> Explanation:
    headers: dict[str, Any] = {"x-redrive-reason": "attempts", "x-final-error": error, "x-original-queue": queue}
    if stack is not None:
        headers["x-redrive-stack"] = stack
    return explain(PlainMessage(queue="dlq", headers=headers), dlq="dlq", now_ms=1)


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
        (python_stack(10), "orders.py place"),
        (frameworks.DOTNET_STACK, "Acme.Orders.PaymentClient.<Pay>d__.MoveNext"),
        (
            frameworks.JAVA_STACK.partition("Caused by")[2],
            "com.acme.orders.Payments$$FastClassBySpringCGLIB$$.pay",
        ),
        ("Error: x\n    at pay (/app/src/pay.js:10:5)\n    at node:internal/process:1:1", "pay pay.js"),
        ("Error: x\n    at /app/src/pay.js:10:5", "pay.js"),
        ("panic: x\n\ngoroutine 1 [running]:\nmain.place(0xc000)\n\t/app/main.go:42 +0x1d", "main.go"),
        ("   at System.Foo.Bar()\n", "System.Foo.Bar"),
        ("no frames at all", None),
    ],
)
def test_the_frame_that_tells_is_the_application_s_innermost(stack: str, frame: str | None) -> None:
    assert top_frame(stack) == frame


OURS = (
    '  File "{root}/redrive/runtime/delivery_handler.py", line 176, in fast\n    body = read(delivery.body)\n',
    '  File "{root}/redrive/runtime/delivery_handler.py", line 458, in _run\n    body = read(delivery.body)\n',
    '  File "{root}/redrive/runtime/delivery_handler.py", line 458, in _run\n    body = read(delivery.body)\n'
    '  File "{root}/redrive/runtime/codecs.py", line 90, in read\n    decode(body)\n',
    '  File "C:\\venv\\Lib\\site-packages\\redrive\\core\\failures.py", line 1, in describe\n',
)


@pytest.mark.parametrize("root", ["/src", "/app/venv/lib/python3.12/site-packages"])
def test_our_own_frames_are_no_part_of_a_group(root: str) -> None:
    without = parked("DecodeError: JSON is malformed: invalid character (byte 1)")
    for stack in OURS:
        again = parked("DecodeError: JSON is malformed: invalid character (byte 7)", stack.replace("{root}", root))
        assert again.group_id == without.group_id, stack


def test_a_library_s_frame_tells_where_there_is_none_but_ours_besides() -> None:
    library = '  File "{root}/site-packages/pydantic/main.py", line 9, in model_validate_json\n    raise\n'
    found = {top_frame(ours + library.replace("{root}", root)) for ours in OURS[:2] for root in ("/a/v", "/b/w/lib")}
    assert found == {"pydantic/main.py model_validate_json"}
    found = {top_frame(f'  File "{root}/json/decoder.py", line 9, in decode\n') for root in STANDARD_LIBRARIES}
    assert found == {"json/decoder.py decode"}


STANDARD_LIBRARIES = (
    "/usr/lib/python3.11",
    "/opt/pyenv/versions/3.13.1/lib/python3.13",
    r"C:\Program Files\Python311\Lib",
)


def python_frames(*frames: str, root: str) -> str:
    """`dir/file.py function`, the outermost first."""
    lines = []
    for number, frame in enumerate(frames):
        path, _, function = frame.rpartition(" ")
        lines.append(f'  File "{path.replace("{root}", root)}", line {number}, in {function}\n    call()\n')
    return "".join(lines)


ROOTS = ["/g/rel1", "/g/rel2", "/srv/shop/releases/20260131120000", "/home/ada/src/shop", r"C:\deploy\17"]
PYTHON_STACKS = {
    "a handler in the root": ("{root}/shop.py place",),
    "another function": ("{root}/shop.py refund",),
    "a file below the handler's": ("{root}/shop.py place", "{root}/payments/client.py send"),
    "a file of the same name elsewhere": ("{root}/shop.py place", "{root}/taxes/client.py send"),
    "next to the handler's": ("{root}/handlers/orders.py place", "{root}/stores/client.py send"),
    "a package": ("{root}/shop/__init__.py place",),
    "another package": ("{root}/stock/__init__.py place",),
    "through a library": ("{root}/shop.py place", "{root}/.venv/lib/python3.12/site-packages/x/client.py wrap"),
    "a callback of one": (
        "{root}/shop.py place",
        "{root}/.venv/lib/python3.12/site-packages/x/client.py wrap",
        "{root}/shop.py on_answer",
    ),
    "in a library elsewhere": ("{root}/shop.py place", "/opt/inhouse/money/rates.py rate"),
}


def test_the_same_code_in_another_directory_is_one_group_and_other_code_another() -> None:
    seen: dict[str, str] = {}
    for name, frames in PYTHON_STACKS.items():
        groups = {parked("KeyError: 'sku'", python_frames(*frames, root=root)).group_id for root in ROOTS}
        assert len(groups) == 1, name
        seen[groups.pop()] = name
    # A library is not the application's: what fails in it fails at the handler that called it.
    assert [name for name in PYTHON_STACKS if name not in seen.values()] == ["a handler in the root"]


def test_a_module_that_is_loaded_from_another_directory_fails_in_the_same_group(tmp_path: Path) -> None:
    code = (
        "from {package} import rates\ndef place(sku):\n    return rates.of(sku)\ndef refund(sku):\n    return {}[sku]\n"
    )
    groups: dict[str, set[str]] = {"place": set(), "refund": set()}
    for number, release in enumerate(("rel1", "rel2")):
        package = f"shop_of_{number}"
        folder = tmp_path / release / "shop"
        folder.mkdir(parents=True)
        (folder / "rates.py").write_text("def of(sku):\n    return {}[sku]\n")
        (folder / "__init__.py").write_text("")
        (folder / "orders.py").write_text(code.replace("{package}", package))
        load(package, folder / "__init__.py")
        orders = load(f"{package}.orders", folder / "orders.py")
        for name, found in groups.items():
            with pytest.raises(KeyError) as raised:
                getattr(orders, name)("sku-17")
            failure = describe_error(raised.value)
            assert release in failure.stack
            # The test's own frame is the outermost, and of one directory in both.
            stack = failure.stack[failure.stack.index(f'  File "{folder}') :]
            found.add(parked(failure.text, stack).group_id)
    assert [len(found) for found in groups.values()] == [1, 1]
    assert groups["place"] != groups["refund"]


def load(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NODE_STACKS = (
    "Error: no\n    at place ({root}/shop.js:10:5)\n    at node:internal/process:1:1",
    "Error: no\n    at Object.refund ({root}/shop.js:10:5)\n",
    "Error: no\n    at async file://{root}/lib/pay.mjs:10:5\n    at async handle (file://{root}/index.mjs:3:1)\n",
    "Error: no\n    at async file://{root}/tax/pay.mjs:10:5\n    at async handle (file://{root}/index.mjs:3:1)\n",
    "Error: no\n    at send ({root}/node_modules/.pnpm/axios@1.7.2/node_modules/axios/lib/core.js:1:2)\n",
)
DOTNET_STACKS = (
    "   at Acme.Orders.Payments.<>c__DisplayClass{n}_0.<Pay>b__{n}() in {root}/Orders/Payments.cs:line 42\n",
    "   at Acme.Orders.Payments.<Pay>g__Ask|{n}_0(Order order) in {root}/Orders/Payments.cs:line 42\n",
    "   at Acme.Orders.Payments.Pay(Order order) in {root}/Orders/Payments.cs:line 42\n",
)
JAVA_STACKS = (
    "x.Boom: no\n\tat java.base@17.0.{n}/java.net.Socket.connect(Socket.java:1)\n"
    "\tat deployment.orders-1.{n}.war//com.acme.Orders.place(Orders.java:17)\n",
    "x.Boom: no\n\tat app/com.acme.orders@1.{n}/com.acme.Orders.refund(Orders.java:17)\n",
    "x.Boom: no\n\tat com.acme.Orders$$Lambda${n}/0x00000008{n}.accept(Unknown Source)\n",
)


@pytest.mark.parametrize("stacks", [NODE_STACKS, DOTNET_STACKS, JAVA_STACKS])
def test_the_same_place_of_others_is_one_frame_on_every_host_and_in_every_release(stacks: tuple[str, ...]) -> None:
    frames = []
    for stack in stacks:
        found = {top_frame(stack.replace("{root}", root).replace("{n}", str(n))) for n, root in enumerate(ROOTS, 3)}
        assert len(found) == 1, found
        frames.append(found.pop())
    assert None not in frames
    assert len(set(frames)) == len(stacks)


def test_the_top_lines_are_those_about_the_failure() -> None:
    assert top_lines(python_stack(1), 1) == "raise"
    assert top_lines("Boom\n  at a\n  at b", 2) == "Boom\nat a"


def test_without_an_error_the_reason_and_the_type_make_the_group() -> None:
    def rejected(kind: str, reason: str = "rejected") -> Explanation:
        headers = {"x-death": [{"queue": "orders", "reason": reason, "count": 1}]}
        letter = PlainMessage(queue="dlq", headers=headers, properties={"type": kind})
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


def test_no_character_of_a_strangers_text_makes_one_kind_of_two() -> None:
    def faulted(queue: str, error_type: str) -> Explanation:
        headers = {
            "MT-Fault-ExceptionType": error_type,
            "MT-Fault-Message": "no",
            "MT-Fault-Timestamp": "x",
            "x-original-queue": queue,
        }
        return explain(PlainMessage(queue="dlq", headers=headers), dlq="dlq", now_ms=1)

    one, other = faulted("a\x1fb", "c"), faulted("a", "b\x1fc")
    assert (one.queue, one.error_type) != (other.queue, other.error_type)
    assert one.group_id != other.group_id


@given(st.lists(st.tuples(*[st.none() | st.text("a\x1f:-1", max_size=3)] * 4), min_size=2, max_size=2, unique=True))
def test_kinds_are_one_only_if_all_that_makes_them_is(parts: list[tuple[str | None, ...]]) -> None:
    ids = {
        identify_group(
            FrameworkReport(
                by="",
                reason="error",
                error_type=error_type,
                error_message=None if error_type is None else "no",
                status_code=len(code or ""),
            ),
            queue=queue or "",
            type=None,
            owner=owner,
        ).id
        for queue, owner, error_type, code in parts
    }
    made = {
        (
            queue or "",
            None if owner == (queue or "") else owner,
            error_type,
            0 if error_type is None else len(code or ""),
        )
        for queue, owner, error_type, code in parts
    }
    assert len(ids) == len(made)


def test_ids_are_made_with_the_secret_of_a_database_and_nothing_else_is() -> None:
    letter = PlainMessage(queue="dlq", headers={"x-redrive-reason": "attempts", "x-final-error": "Boom: card 4111"})
    plain, one, other = (explain(letter, dlq="dlq", now_ms=1, group_key=key) for key in (b"", b"a" * 32, b"b" * 32))
    assert len({plain.group_id, one.group_id, other.group_id}) == 3
    assert one == explain(letter, dlq="dlq", now_ms=1, group_key=b"a" * 32)
    assert plain.group_title == one.group_title
