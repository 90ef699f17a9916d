"""An app that can't be run is told so in one clear sentence, before anything is connected."""

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Message
from redrive.core import Rule
from redrive.runtime import InvalidApp
from redrive.topology import read_declaration
from redrive.wiring import prepare_app
from tests.unit.runtime.stage import LADDER, compiled


def nothing() -> None: ...
def three(body: bytes, message: Message, more: int) -> None: ...
def by_keyword(body: bytes, *, needed: int) -> None: ...
def message_first(message: Message) -> None: ...
def unresolvable(body: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def socket_body(body: complex) -> None: ...


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (nothing, "handler nothing takes no body; write it like: async def place(order: Order, message: Message)"),
        (three, "handler three takes 3 parameters; there are a body and a message"),
        (by_keyword, "handler by_keyword needs needed by keyword, which nobody gives it"),
        (message_first, "takes the message first; the body is the first parameter, the message the second"),
        (unresolvable, "its annotation 'Nowhere' can't be resolved"),
    ],
)
def test_a_handler_that_can_not_be_called_is_refused_where_it_is_registered(
    handler: Callable[..., Any], sentence: str
) -> None:
    with pytest.raises(InvalidApp) as refused:
        App(compiled()).consumer("orders")(handler)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"prefetch": 0}, "consumer of orders: prefetch is 0; give 1 to 65535"),
        ({"concurrency": 0}, "concurrency is 0; give 1 or more"),
        ({"timeout": "soon"}, "'soon' is not a duration"),
        ({"timeout": 0}, "a timeout must leave the handler some time"),
        ({"crashes_max": 1}, "crashes_max is 1; give 2 or more (one crash may be a neighbour's), or None"),
        ({"pause_after": -1}, "pause_after is -1; give 0 or more; 0 is never"),
        ({"park_on": ["ValueError"]}, "'ValueError' is neither an exception type nor a status"),
        ({"age_max": -1}, "a delay of -1 is not one"),
    ],
)
def test_options_that_can_not_be_are_refused_where_they_are_said(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidApp) as refused:
        App(compiled()).consumer("orders", **options)
    assert sentence in str(refused.value)


def test_an_app_is_refused_with_all_its_problems_at_once() -> None:
    app = App(compiled())

    @app.consumer("order")
    async def misspelt(body: bytes) -> None: ...

    @app.consumer("orders")
    async def odd(body: complex) -> None: ...

    with pytest.raises(InvalidApp) as refused:
        prepare_app(app)
    first, second = refused.value.problems
    assert first.endswith("queue order: is not declared, so how it retries is not known; did you mean `orders`?")
    assert second.startswith(
        "handler test_an_app_is_refused_with_all_its_problems_at_once.<locals>.odd of queue orders:"
    )


def test_an_app_without_consumers_and_a_queue_with_two_are_refused() -> None:
    app = App(compiled())
    with pytest.raises(InvalidApp, match="the app has no consumers"):
        prepare_app(app)
    for _ in range(2):

        @app.consumer("orders")
        async def place(body: bytes) -> None: ...

    with pytest.raises(InvalidApp, match="queue orders has two handlers in one app"):
        prepare_app(app)


class Callable_:
    async def __call__(self, body: bytes, message: Message) -> None: ...


async def partly(prefix: str, body: bytes) -> None: ...


@pytest.mark.parametrize(
    ("handler", "is_async", "takes_message"),
    [
        (Callable_(), True, True),
        (functools.partial(partly, "x"), True, False),
        (lambda body: None, False, False),
        (lambda *everything: None, False, True),
    ],
)
def test_handlers_may_be_any_callable(handler: Callable[..., Any], is_async: bool, takes_message: bool) -> None:
    app = App(compiled())
    app.consumer("orders")(handler)
    signature = app.registrations[0].signature
    assert (signature.is_async, signature.takes_message) == (is_async, takes_message)


def test_the_url_comes_from_the_flag_then_the_environment_then_the_file() -> None:
    app = App(read_declaration(f"broker: amqp://from-file/\nvhost: shop\n{LADDER}", file="x"))

    @app.consumer("orders")
    async def place(body: bytes) -> None: ...

    environment = {"REDRIVE_URL": "amqp://from-environment/own"}
    flagged = prepare_app(app, url="amqp://flag/", environment=environment)
    assert (flagged.target.hosts[0][0], flagged.target.vhost) == ("flag", "shop")
    told = prepare_app(app, environment=environment)
    assert (told.target.hosts[0][0], told.target.vhost) == ("from-environment", "own")
    filed = prepare_app(app, environment={})
    assert (filed.target.hosts[0][0], filed.target.vhost) == ("from-file", "shop")


def test_a_path_is_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "redrive.yaml").write_text(LADDER)
    (tmp_path / "definitions.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    app = App("redrive.yaml")

    @app.consumer("orders")
    async def place(body: bytes) -> None: ...

    assert [one.plan.name for one in prepare_app(app).consumptions] == ["orders"]
    app.source = "definitions.json"
    with pytest.raises(InvalidApp, match=r"definitions\.json does not say how queues retry"):
        prepare_app(app)


def test_rules_are_asked_in_the_order_own_park_retry_rest() -> None:
    app = App(compiled())
    own = Rule(KeyError, "ack")
    app.consumer("orders", rules=[own], park_on=[ValueError], retry_on=[OSError])(lambda body: None)
    rules = app.registrations[0].options.rules
    assert [(rule.on, rule.then) for rule in rules] == [
        ((KeyError,), "ack"),
        ((ValueError,), "park"),
        ((OSError,), "retry"),
        ((Exception,), "park"),
    ]


@pytest.mark.slow
def test_importing_redrive_imports_nothing_else_until_a_name_is_used() -> None:
    code = (
        "import sys, redrive\n"
        "assert [name for name in sys.modules if name.startswith('redrive.')] == ['redrive.lazy_exports']\n"
        "assert 'asyncio' not in sys.modules\n"
        "from redrive import App, Park\n"
        "assert set(redrive.__all__) <= set(dir(redrive))\n"
        "for name in redrive.__all__: getattr(redrive, name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
