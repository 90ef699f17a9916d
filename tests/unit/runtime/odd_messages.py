"""Messages that no usual client publishes: an x-death that no broker wrote, headers that can't be decoded."""

from typing import Any

from redrive.core import headers as names
from redrive.wire import Int64, Properties

READ = sorted(names.BOUND_HEADERS | names.REDRIVEN_HEADERS | names.COUNT_HEADERS | {names.DEATHS, "stranger"})


def death(**changes: Any) -> dict[str, Any]:
    """An entry as a broker writes it, but for `changes`; None takes one away."""
    made = {"count": Int64(1), "exchange": "e", "queue": "q", "reason": "expired", "routing-keys": ["k"], **changes}
    return {name.replace("_", "-"): value for name, value in made.items() if value is not None}


def deep(levels: int = 150) -> bytes:
    """A table within a table within …: the typed value's bytes, which brokers take and we do not read."""
    table = b""
    for _ in range(levels):
        table = b"\x01kF" + len(table).to_bytes(4, "big") + table
    return b"F" + len(table).to_bytes(4, "big") + table


def with_raw_header(properties: Properties, name: str, value: bytes) -> Properties:
    """The properties with a header of these bytes, type in front."""
    return properties.append_headers(bytes((len(name),)) + name.encode() + value)


ODD: dict[str, Any] = {
    "text in it": ["s"],
    "number in it": [5],
    "array in it": [[]],
    "nothing in it": [None],
    "text after a death": [death(), "s"],
    "text before a death": ["s", death()],
    "empty table": [{}],
    "count is text": [death(count="x")],
    "count is a flag": [death(count=True)],
    "count is a table": [death(count={"a": 1})],
    "count is a fraction": [death(count=1.5)],
    "no count": [death(count=None)],
    "no queue": [death(queue=None)],
    "queue is a number": [death(queue=5)],
    "queue is bytes": [death(queue=b"q")],
    "no reason": [death(reason=None)],
    "reason is a number": [death(reason=5)],
    "keys are text": [death(routing_keys="z")],
    "keys are numbers": [death(routing_keys=[5])],
    "exchange is a number": [death(exchange=5)],
    "second is odd": [death(), death(queue="p", count="x")],
    "no array": "hello",
    "a table": death(),
    "a number": 7,
}


def messages(queue: str) -> dict[str, Properties]:
    """One for each odd x-death, about this queue where it is about one."""
    made = {}
    for name, told in ODD.items():
        about = told
        if isinstance(told, list):
            about = [
                {**one, "queue": queue} if isinstance(one, dict) and one.get("queue") == "q" else one for one in told
            ]
        made[name] = Properties.of(delivery_mode=2, message_id=name, headers={"x-death": about, "mine": "kept"})
    plain = Properties.of(delivery_mode=2, message_id="too deep", headers={"mine": "kept"})
    made["too deep"] = with_raw_header(plain, "x-death", deep())
    plain = Properties.of(delivery_mode=2, message_id="as deep as can be", headers={"mine": "kept"})
    made["as deep as can be"] = with_raw_header(plain, "x-death", deep(98))
    return made


def unreadable() -> dict[str, Properties]:
    """Each header that we read nested too deep: alone, beside a digest, and without an id."""
    made = {}
    for name in READ:
        plain = Properties.of(delivery_mode=2, message_id=name, headers={"mine": "kept"})
        made[name] = with_raw_header(plain, name, deep())
        if name != names.DIGEST:
            told = plain.edit(headers={names.DIGEST: "a"})
            made[f"{name} with a digest"] = with_raw_header(told, name, deep())
            made[f"{name} without an id"] = with_raw_header(told.edit(message_id=None), name, deep())
    for name in ("CC", "BCC"):
        plain = Properties.of(delivery_mode=2, message_id=name, headers={"mine": "kept"})
        value = deep()
        made[name] = with_raw_header(plain, name, b"A" + len(value).to_bytes(4, "big") + value)
    return made
