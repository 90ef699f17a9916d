"""What a broker refuses is reported so that an operator knows what to change, and no password is shown."""

import asyncio
from dataclasses import replace

import pytest

from redrive import App
from redrive.client import AccessRefused, InvalidUrl, parse_url
from redrive.embedded import EmbeddedBroker
from redrive.runtime import InvalidApp
from redrive.wiring import (
    LoginRefused,
    PermissionMissing,
    PreparedApp,
    Setting,
    apply_arguments,
    broker_url,
    explain_refusals,
    prepare_app,
    start_app,
    target_of,
)
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled

SOURCES = {
    "--url": "check --url",
    "REDRIVE_URL": "check REDRIVE_URL",
    "broker: of shop.yaml": "check broker: of shop.yaml",
    "the default": "name the broker with --url or REDRIVE_URL (the default was tried)",
}


def an_app() -> App:
    app = App(compiled("queues: {orders: {retry: [30s]}}"))

    @app.consumer("orders")
    async def place(body: bytes) -> None: ...

    return app


def prepared(url: str, source: str) -> PreparedApp:
    return replace(prepare_app(an_app(), url=url), url=Setting(value=url, source=source))


def refusal(url_of: str, source: str) -> str:
    """What is said to who starts an app; HOST in the URL is a broker that runs."""
    said: list[str] = []

    async def scenario() -> None:
        async with EmbeddedBroker() as broker:
            host = broker.url.split("@")[1].split("/")[0]
            with pytest.raises(LoginRefused) as refused:
                await start_app(prepared(url_of.replace("HOST", host), source))
            said.append(str(refused.value).replace(host, "HOST"))

    run_scenario(scenario())
    return said[0]


@pytest.mark.parametrize("source", SOURCES)
def test_a_wrong_password_names_user_host_and_where_the_url_is_from(source: str) -> None:
    said = refusal("amqp://guest:hunter2@HOST/", source)
    assert said == f"HOST does not accept user guest with this password; {SOURCES[source]}"


def test_an_unknown_vhost_is_named() -> None:
    said = refusal("amqp://guest:guest@HOST/nope", "--url")
    assert said == "HOST has no vhost nope; create it, or check --url"


def told(error: Exception, *, file: str | None) -> str:
    target, setting = parse_url("amqp://shop:secret@broker:5672/shop"), Setting(value="", source="--url")
    with pytest.raises((LoginRefused, PermissionMissing)) as refused, explain_refusals(target, setting, file=file):
        raise error
    assert "secret" not in str(refused.value)
    return str(refused.value)


def test_a_vhost_without_access_says_how_to_grant_it() -> None:
    reason = "broker:5672: 530 NOT_ALLOWED - access to vhost 'shop' refused for user 'shop'"
    assert told(LoginRefused((reason,)), file="redrive.yaml") == (
        "user shop has no access to vhost shop of broker:5672; grant it with: rabbitmqctl set_permissions -p shop"
        " shop …, or check --url"
    )


@pytest.mark.parametrize(
    "text",
    [
        "ACCESS_REFUSED - access to queue 'orders' in vhost 'shop' refused for user 'shop'",  # 3.10
        "ACCESS_REFUSED - read access to queue 'orders' in vhost 'shop' refused for user 'shop'",
    ],
)
def test_a_queue_that_may_not_be_read_points_to_the_permissions(text: str) -> None:
    assert told(AccessRefused(403, text), file="my shop.yaml") == (
        "user shop may not read queue orders of amqp://broker:5672/shop; see the rights it needs with: redrive compile"
        " 'my shop.yaml' --format permissions"
    )
    assert told(AccessRefused(403, text), file=None).endswith(
        "; let somebody grant it that right with: rabbitmqctl set_permissions"
    )


def test_a_url_that_can_not_be_used_says_whose_it_is() -> None:
    said = broker_url(flag=None, environment={}, file="localhost", file_name="shop.yaml")
    with pytest.raises(InvalidUrl, match=r"^broker: of shop\.yaml: localhost is no AMQP URL; write it like"):
        target_of(said)
    said = broker_url(flag=None, environment={"REDRIVE_URL": "http://u:hunter2@h"}, file=None)
    with pytest.raises(InvalidUrl, match=r"^REDRIVE_URL: http://u:\*\*\*@h is no AMQP URL"):
        target_of(said)


def test_the_hint_to_declare_names_the_broker_that_was_named_without_its_password() -> None:
    target = parse_url("amqps://shop:secret@one,two:5673/a%2Fb")
    by_hand, elsewhere = Setting(value="", source="--url"), Setting(value="", source="REDRIVE_URL")
    assert apply_arguments("redrive.yaml", target, by_hand) == (
        "redrive.yaml --url amqps://shop@one:5671,two:5673/a%2Fb"
    )
    assert apply_arguments("redrive.yaml", target, elsewhere) == "redrive.yaml"
    default = parse_url("amqp://guest:guest@one/")
    assert apply_arguments("my shop.yaml", default, by_hand) == "'my shop.yaml' --url amqp://one:5672/"


def test_an_app_whose_parts_raise_is_one_sentence() -> None:
    class Broken(App):
        def consumptions(self, compiled: object) -> tuple[()]:
            raise KeyError("orders")

    with pytest.raises(
        InvalidApp, match=r"^the app can't be used: KeyError: 'orders' \(.*test_broker_connection\.py, line \d+\)$"
    ):
        asyncio.run(start_app(prepare_app(Broken(an_app().source))))
