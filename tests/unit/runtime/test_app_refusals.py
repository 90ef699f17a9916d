"""What can't be meant is refused where it is written, with the option's name; what may be several may be one."""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Exponential, Fixed, Json, Message, Rule
from redrive.core import RedriveError
from redrive.runtime import InvalidApp
from redrive.topology import declare
from tests.unit.runtime.stage import compiled


async def async_generator(body: bytes) -> AsyncIterator[int]:
    yield 1


def generator(body: bytes) -> Iterator[int]:
    yield 1


async def async_generator_of_two(prefix: str, body: bytes) -> AsyncIterator[int]:
    yield 1


class AsyncGenerates:
    async def __call__(self, body: bytes) -> AsyncIterator[int]:
        yield 1


class Generates:
    def __call__(self, body: bytes) -> Iterator[int]:
        yield 1

    def method(self, body: bytes) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("handler", "name"),
    [
        (async_generator, "async_generator"),
        (generator, "generator"),
        (functools.partial(async_generator_of_two, "x"), "async_generator_of_two"),
        (functools.partial(functools.partial(async_generator_of_two), "x"), "async_generator_of_two"),
        (AsyncGenerates(), "AsyncGenerates"),
        (Generates(), "Generates"),
        (functools.partial(Generates()), "Generates"),
        (Generates().method, "Generates.method"),
    ],
)
def test_a_handler_that_yields_is_refused(handler: Callable[..., Any], name: str) -> None:
    app = App(compiled())
    with pytest.raises(InvalidApp) as refused:
        app.consumer("orders")(handler)
    assert str(refused.value) == f"handler {name} has a yield in it, so calling it runs nothing; return instead"
    assert app.registrations == []


@pytest.mark.parametrize(
    ("register", "sentence"),
    [
        (lambda app: app.consumer(generator), 'a consumer needs the name of its queue; write @app.consumer("queue")'),
        (lambda app: app.consumer(), 'a consumer needs the name of its queue; write @app.consumer("queue")'),
        (lambda app: app.consumer(queue=generator), "a consumer needs the name of its queue"),
        (lambda app: app.consumer(5), '5 is no name of a queue; write @app.consumer("queue")'),
        (lambda app: app.consumer(""), "'' is no name of a queue"),
        (lambda app: app.consumer("orders", [ValueError]), "consumer of orders: options go by their names, and ["),
        (lambda app: app.consumer("orders", timout="3s"), "a consumer has no option timout; did you mean `timeout`?"),
        (lambda app: app.consumer("orders", attempts_max=3), "a consumer has no option attempts_max; "),
        (lambda app: app.consumer("orders")("place"), "consumer of orders: 'place' can't be called"),
    ],
)
def test_a_consumer_is_registered_with_its_queue_and_known_options(register: Any, sentence: str) -> None:
    app = App(compiled())
    with pytest.raises(InvalidApp) as refused:
        register(app)
    assert str(refused.value).startswith(sentence)
    assert app.registrations == []


def test_the_queue_may_be_given_by_name() -> None:
    app = App(compiled())
    app.consumer(queue="orders")(lambda body: None)
    assert app.registrations[0].queue == "orders"


async def middleware(message: Message, proceed: Any) -> None:
    await proceed()


def plain_middleware(message: Message, proceed: Any) -> None: ...
async def narrow_middleware(message: Message) -> None: ...
async def wide_middleware(message: Message, proceed: Any, more: int) -> None: ...
async def keyed_middleware(message: Message, proceed: Any, *, more: int) -> None: ...
async def generating_middleware(message: Message, proceed: Any) -> AsyncIterator[None]:
    yield await proceed()


class MiddlewareObject:
    async def __call__(self, message: Message, proceed: Any) -> None: ...


_NOT_AWAITED = "is no coroutine function; write it like: async def audit(message, proceed): await proceed()"
_WRONG_COUNT = "does not take a message and proceed; write it like: async def audit(message, proceed)"
BAD_MIDDLEWARE = [
    (plain_middleware, f"middleware plain_middleware {_NOT_AWAITED}"),
    (lambda message, proceed: proceed(), f"middleware <lambda> {_NOT_AWAITED}"),
    (generating_middleware, f"middleware generating_middleware {_NOT_AWAITED}"),
    (MiddlewareObject, f"middleware MiddlewareObject {_NOT_AWAITED}"),
    (narrow_middleware, f"middleware narrow_middleware {_WRONG_COUNT}"),
    (wide_middleware, f"middleware wide_middleware {_WRONG_COUNT}"),
    (keyed_middleware, f"middleware keyed_middleware {_WRONG_COUNT}"),
    (3, "middleware 3 can't be called"),
    ("audit", "middleware 'audit' can't be called"),
    (None, "middleware None can't be called"),
]


@pytest.mark.parametrize(("function", "sentence"), BAD_MIDDLEWARE)
def test_middleware_that_can_not_be_awaited_is_refused(function: Any, sentence: str) -> None:
    app = App(compiled())
    for register in (
        lambda: app.middleware(function),
        lambda: app.consumer("orders", middleware=function),
        lambda: app.consumer("orders", middleware=[middleware, function]),
    ):
        with pytest.raises(InvalidApp) as refused:
            register()
        assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "function",
    [middleware, MiddlewareObject(), functools.partial(wide_middleware, more=1), MiddlewareObject().__call__],
)
def test_any_callable_that_is_awaited_may_be_middleware(function: Any) -> None:
    app = App(compiled())
    app.middleware(function)
    for given in (function, [function], (one for one in [function])):
        app.consumer("orders", middleware=given)(lambda body: None)
    assert [one.options.middleware for one in app.registrations] == [(function,)] * 3


class NoReader:
    content_type = "x/y"

    def write(self, value: Any) -> bytes:
        return b""


class NoWrite:
    content_type = "x/y"

    def reader(self, body_type: Any) -> Any: ...


class NoContentType(NoReader):
    content_type = 3  # type: ignore[assignment]

    def reader(self, body_type: Any) -> Any: ...


BAD_CODECS = [NoReader(), NoWrite(), NoContentType(), Json, "json", 3, object()]


@pytest.mark.parametrize("codec", BAD_CODECS)
def test_a_codec_has_both_methods_and_a_content_type(codec: Any) -> None:
    sentence = r"codec is .*; give an object with reader\(body_type\), write\(value\) and a content_type"
    with pytest.raises(InvalidApp, match=sentence):
        App(compiled(), codec=codec)
    with pytest.raises(InvalidApp, match=f"consumer of orders: {sentence}"):
        App(compiled()).consumer("orders", codec=codec)


def test_an_app_always_has_a_codec() -> None:
    with pytest.raises(InvalidApp, match="codec is None"):
        App(compiled(), codec=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [123, None, {"queues": {}}, b"redrive.yaml", ["redrive.yaml"], True])
def test_an_app_is_made_from_a_path_or_a_declaration(source: Any) -> None:
    with pytest.raises(InvalidApp, match=r"an app can't be made from .*; give the path of a redrive\.yaml, or what"):
        App(source)


def test_what_an_app_may_be_made_from() -> None:
    for source in ("redrive.yaml", Path("redrive.yaml"), declare(queues={"orders": {"retry": ["30s"]}}), compiled()):
        assert App(source).source is source


def test_an_apps_name_is_a_text() -> None:
    with pytest.raises(InvalidApp, match="the app's name is 3; give a text"):
        App(compiled(), name=3)  # type: ignore[arg-type]


async def async_decide(outcome: Any, situation: Any) -> None: ...
def narrow_decide(outcome: Any) -> None: ...


_NO_CAUSE = [None, 5, 1000, True, 4.5, "ValueError", str, object(), range(0), range(1, 50)]
_NO_DELAY = ["", "soon", "30", -1, float("nan"), float("inf"), True, [], {}, object(), timedelta(seconds=-1)]
_NO_COUNT = ["a", "3", 1.5, 2.0, True, [], object(), float("nan")]

# Every option, with values that can't be meant; None is one of them only where it does not mean "not said".
BAD_OPTIONS: dict[str, list[Any]] = {
    "park_on": [*_NO_CAUSE, *([one] for one in _NO_CAUSE), [ValueError, "KeyError"]],
    "retry_on": [*_NO_CAUSE[1:], *([one] for one in _NO_CAUSE)],
    "needs_id": [None, 1, 0, "yes", []],
    "pause_on": [*_NO_CAUSE, *([one] for one in _NO_CAUSE), []],
    "rules": [None, 3, "x", ["x"], [Rule], Rule, [Rule(KeyError, "park"), KeyError], {"KeyError": "park"}],
    "backoff": [*_NO_DELAY, Fixed, Exponential, lambda retry: 3, ["1s", "2s"]],
    "jitter": ["a", "0.5", -0.1, 1.1, float("nan"), True, [], object()],
    "age_max": _NO_DELAY,
    "decide": [3, "park", [], async_decide, async_generator, narrow_decide],
    "timeout": [*_NO_DELAY, 0, "0s", timedelta()],
    "prefetch": [*_NO_COUNT, None, 0, -1, 65_536],
    "concurrency": [*_NO_COUNT, 0, -1],
    "codec": BAD_CODECS,
    "middleware": [function for function, _ in BAD_MIDDLEWARE],
    "crashes_max": [*_NO_COUNT, 0, 1, -1],
    "pause_after": [*_NO_COUNT, -1],
}


def test_every_option_is_tried() -> None:
    parameters = inspect.signature(App.consumer).parameters.values()
    assert set(BAD_OPTIONS) == {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, values in BAD_OPTIONS.items() for value in values]
)
def test_a_value_that_can_not_be_meant_is_refused_with_the_options_name(option: str, value: Any) -> None:
    app = App(compiled())
    with pytest.raises(InvalidApp) as refused:
        app.consumer("orders", **{option: value})
    assert str(refused.value).startswith("consumer of orders: ")
    assert option in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_pause_that_is_turned_off_is_about_nothing_but_still_checked() -> None:
    app = App(compiled())
    app.consumer("orders", pause_after=0, pause_on=())(lambda body: None)
    assert app.registrations[0].options.pauses_after(20) is None
    with pytest.raises(InvalidApp, match="pause_on: 5 is neither an exception type nor a status"):
        app.consumer("orders", pause_after=0, pause_on=5)


@pytest.mark.parametrize("option", ["park_on", "retry_on", "pause_on"])
@pytest.mark.parametrize("cause", [ValueError, 404, range(500, 600)])
def test_one_cause_may_be_given_alone(option: str, cause: Any) -> None:
    alone, listed = App(compiled()), App(compiled())
    for app, given in ((alone, cause), (listed, [cause])):
        options: dict[str, Any] = {option: given}
        app.consumer("orders", **options)(lambda body: None)
    assert alone.registrations[0].options == listed.registrations[0].options


def test_one_rule_may_be_given_alone() -> None:
    app, rule = App(compiled()), Rule(KeyError, "park")
    app.consumer("orders", rules=rule)(lambda body: None)
    assert app.registrations[0].options.rules == (rule,)


@pytest.mark.parametrize("delay", ["5s", 5, 5.0, timedelta(seconds=5)])
def test_a_delay_is_a_backoff(delay: Any) -> None:
    app = App(compiled())
    app.consumer("orders", backoff=delay)(lambda body: None)
    assert app.consumptions(compiled())[0].policy.backoff == Fixed("5s")


def test_a_backoff_of_ones_own_is_taken_as_it_is() -> None:
    class Fibonacci:
        def delay_ms(self, retry: int, /) -> int:
            return 1000

    app, backoff = App(compiled()), Fibonacci()
    app.consumer("orders", backoff=backoff)(lambda body: None)
    assert app.consumptions(compiled())[0].policy.backoff is backoff


def test_a_rule_that_can_not_be_meant_is_one_of_our_errors() -> None:
    with pytest.raises(RedriveError, match="'rety' is no verdict; did you mean `retry`"):
        Rule(KeyError, "rety")  # type: ignore[arg-type]
