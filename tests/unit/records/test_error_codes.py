"""Numbers that say what went wrong keep errors apart; numbers that only say whose message it was do not.

The texts are written in the formats of the clients and frameworks named beside them.
"""

from collections.abc import Callable
from typing import Any

import pytest

from redrive.core import PlainMessage
from redrive.records import Explanation, explain, normalise_message
from redrive.records.explanations.error_templates import error_codes

STATUSES = (302, 400, 404, 429, 500, 503)
REASONS = {
    302: "Found",
    400: "Bad Request",
    404: "Not Found",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
HTTP: dict[str, Callable[[int, int], str]] = {
    "requests": lambda status, n: f"{status} Client Error: {REASONS[status]} for url: https://pay.example/orders/{n}",
    "httpx": lambda status, n: f"Client error '{status} {REASONS[status]}' for url 'https://pay.example/orders/{n}'",
    "aiohttp": lambda status, n: (
        f"{status}, message='{REASONS[status]}', url='https://pay.example/{n}', status={status}"
    ),
    "urllib": lambda status, n: f"HTTP Error {status}: {REASONS[status]} after {n} ms",
    ".NET": lambda status, n: (
        f"Response status code does not indicate success: {status} ({REASONS[status]}). Request {n}"
    ),
    "Spring RestTemplate": lambda status, n: f'{status} {REASONS[status]}: "{{"order":{n}}}"',
    "Spring 6": lambda status, n: f"{status} : [no body] for order {n}",
    "Feign": lambda status, n: f"[{status} {REASONS[status]}] during [GET] to [http://stock/{n}] [Stock#get(Long)]",
    "java.net": lambda status, n: f"Server returned HTTP response code: {status} for URL: http://stock/{n}",
    "axios": lambda status, n: f"Request failed with status code {status}, order {n}",
    "got": lambda status, n: f"Response code {status} ({REASONS[status]}) for order {n}",
    "Go": lambda status, n: f"order {n}: unexpected status code: {status}",
    "Go, bad status": lambda status, n: f"post https://pay.example/{n}: bad status: {status} {REASONS[status]}",
    "googleapi": lambda status, n: f"googleapi: Error {status}: no such thing {n}",
    "aws": lambda status, n: f"https response error StatusCode: {status}, RequestID: REQ{n}X, api error",
    "redrive push": lambda status, n: f"HTTP {status} from the service for order {n}",
}
OTHERS: dict[str, tuple[tuple[str, ...], Callable[[str, int], str]]] = {
    "Oracle": (("ORA-00942", "ORA-00001", "ORA-12541"), lambda code, n: f"{code}: it failed for order {n}"),
    "SQLSTATE of PDO": (
        ("23000", "42S02", "HY000"),
        lambda code, n: f"SQLSTATE[{code}]: entry '{n}' violates a constraint",
    ),
    "SQLState of Hibernate": (("08S01", "40001"), lambda code, n: f"SQL Error: 0, SQLState: {code}, order {n}"),
    "PyMySQL": (("1062", "2006", "1205"), lambda code, n: f"({code}, \"Duplicate entry '{n}' for key 'id'\")"),
    "SQL Server": (("2627", "1205"), lambda code, n: f"Violation of key {n}. Error Number:{code},State:1,Class:14"),
    "MongoDB": (("E11000", "E11001"), lambda code, n: f"{code} duplicate key error collection: shop dup key: {n}"),
    "errno": (("111", "104", "110"), lambda code, n: f"[Errno {code}] Connect call failed ('10.0.0.{n % 255}', 5432)"),
    "os error of Rust": (("2", "13"), lambda code, n: f"can't open file {n} (os error {code})"),
    "exit code": (("1", "137"), lambda code, n: f"job {n} exited with code {code}"),
    "exit status of Go": (("1", "2"), lambda code, n: f"convert {n}: exit status {code}"),
    "Celery": (("9", "11"), lambda code, n: f"Worker exited prematurely: signal {code} (SIGKILL) Job: {n}."),
    "HRESULT": (("0x80004005", "0x80131904"), lambda code, n: f"A transport error ({code}) for order {n}"),
    "amqp": (("404", "406"), lambda code, n: f"Basic.publish: ({code}) NOT_FOUND - no exchange 'x{n}' in vhost '/'"),
    "RabbitMQ's Java client": (
        ("404", "406"),
        lambda code, n: f"#method<channel.close>(reply-code={code}, reply-text=for {n}, class-id=60, method-id=40)",
    ),
    "SMTP": (("550 5.1.1", "421 4.7.0"), lambda code, n: f"{code} mailbox of customer {n}"),
    "ClickHouse": (("241", "159"), lambda code, n: f"Code: {code}. Memory or time of query {n}"),
    "any": (("5", "7"), lambda code, n: f"broker says error code {code} for offset {n}"),
}
NOISE: dict[str, Callable[[int], str]] = {
    "an id": lambda n: f"order {n} not found",
    "a duration": lambda n: f"timed out after {n} ms",
    "an address": lambda n: f"connect ECONNREFUSED 10.0.{n % 255}.7:{1024 + n % 60000}",
    "a voucher": lambda n: f"promo code {n} is not valid",
    "a voucher after a colon": lambda n: f"promo code: {n} is not valid",
    "a count": lambda n: f"error: {n} lines failed",
    "a uuid": lambda n: f"no payment 6f1e2c8a-1b2c-4d5e-8f90-{n:012d}",
    "an amount": lambda n: f"balance -{n}.20 is below zero",
    "a path": lambda n: f"GET /orders/{n}/status failed",
    "an address in memory": lambda n: f"<Order object at 0x7f{n:010x}>",
    "an offset": lambda n: f"partition 3 has nothing at offset {n}",
    "an address in quotes": lambda n: f"no house '{n % 900 + 100} Main Street'",
    "a number before a colon": lambda n: f"order {n % 900 + 100} : nothing there",
    "a name": lambda n: f"ORD-A{n} is locked by worker-{n}",
}


def told(message: str, *, stack: str | None = None, status: int | None = None) -> Explanation:
    headers: dict[str, Any] = {
        "x-redrive-reason": "attempts",
        "x-final-error": f"HTTPStatusError: {message}",
        "x-original-queue": "orders",
    }
    if stack is not None:
        headers["x-redrive-stack"] = stack
    if status is not None:
        headers["x-final-status-code"] = status
    return explain(PlainMessage(queue="dlq", headers=headers), dlq="dlq", now_ms=1)


STACK = '  File "/app/shop/pay.py", line 7, in pay\n    answer.raise_for_status()\n'


@pytest.mark.parametrize("stack", [None, STACK], ids=["without a stack", "from one place in the code"])
@pytest.mark.parametrize("client", HTTP)
def test_statuses_are_told_apart_and_orders_are_not(client: str, stack: str | None) -> None:
    groups = [{told(HTTP[client](status, n), stack=stack).group_id for n in (7, 4711)} for status in STATUSES]
    assert [len(group) for group in groups] == [1] * len(STATUSES)
    assert len(set.union(*groups)) == len(STATUSES)


@pytest.mark.parametrize("stack", [None, STACK], ids=["without a stack", "from one place in the code"])
def test_a_status_beside_the_error_tells_too(stack: str | None) -> None:
    told_apart = {told("the service refused", stack=stack, status=status).group_id for status in (*STATUSES, None)}
    assert len(told_apart) == len(STATUSES) + 1
    assert told("refused", status=429).group_title == "HTTPStatusError 429 in orders: refused"


@pytest.mark.parametrize("stack", [None, STACK], ids=["without a stack", "from one place in the code"])
@pytest.mark.parametrize("kind", OTHERS)
def test_codes_are_told_apart_and_orders_are_not(kind: str, stack: str | None) -> None:
    codes, write = OTHERS[kind]
    groups = [{told(write(code, n), stack=stack).group_id for n in (7, 4711)} for code in codes]
    assert [len(group) for group in groups] == [1] * len(codes)
    assert len(set.union(*groups)) == len(codes)


@pytest.mark.parametrize("stack", [None, STACK], ids=["without a stack", "from one place in the code"])
@pytest.mark.parametrize("kind", NOISE)
def test_what_only_says_whose_message_it_was_splits_nothing(kind: str, stack: str | None) -> None:
    assert len({told(NOISE[kind](n), stack=stack).group_id for n in (7, 404, 4711, 31337)}) == 1


def test_a_code_stays_in_the_title_and_the_rest_does_not() -> None:
    assert normalise_message("404 Not Found for order 17") == "404 Not Found for order <n>"
    assert normalise_message("ORA-00942: table 17") == "ORA-00942: table <n>"
    assert error_codes("status code 404, then 404 Not Found; order 17") == "status code 404 404"
    assert error_codes("order 17") == ""
