"""`redrive push`: a queue's messages to a service in any language, by HTTP POST."""

import os
from typing import Literal, cast

import click

from redrive.cli.console import announce_start
from redrive.cli.secret_files import with_broker_files
from redrive.runtime import CRASHES_MAX
from redrive.wiring import (
    Existing,
    Other4xx,
    PreparedApp,
    PushedQueue,
    TelemetryOptions,
    push_target,
    read_text,
    run_push,
)


@click.command("push")
@click.argument("queue")
@click.option("--to", required=True, metavar="URL", help="Where to POST: http(s)://host:port/path.")
@click.option("--file", default="redrive.yaml", show_default=True, help="The redrive.yaml that declares QUEUE.")
@click.option(
    "--existing",
    type=click.Choice(("again", "reject")),
    help="QUEUE is in no file. A failed message goes to the queue's end and comes again after a growing pause (again),"
    " or is rejected to the dead-letter exchange the queue has (reject).",
)
@click.option(
    "--has-dead-letter-exchange",
    is_flag=True,
    help="With --existing reject: QUEUE has one, though it can't be seen (from a policy; no right to configure).",
)
@with_broker_files
@click.option("--url", help="The broker: amqp(s)://user:password@host:port/vhost.")
@click.option("--no-wait", is_flag=True, help="Fail if QUEUE is missing, instead of waiting for it.")
@click.option("--concurrency", default=50, show_default=True, type=click.IntRange(1, 10_000), help="Requests at once.")
@click.option("--timeout", default="30s", show_default=True, metavar="T", help="For a whole request.")
@click.option("--connect-timeout", default="5s", show_default=True, metavar="T", help="For its connection.")
@click.option(
    "--pause-after",
    type=click.IntRange(0),
    metavar="N",
    help="Pause after N failures in a row that mean the service is not there (no connection, 502, 503, 504), and"
    " look now and then whether it is. Default: FILE's pause_after, else never; 0 means never.",
)
@click.option("--pause-on-timeouts", is_flag=True, help="Count timeouts towards --pause-after too.")
@click.option(
    "--other-4xx",
    type=click.Choice(("park", "retry")),
    help="What a 4xx other than 408, 409, 425 and 429 means. By default as FILE says, else park.",
)
@click.option(
    "--crashes-max",
    default=str(CRASHES_MAX),
    show_default=True,
    metavar="N|none",
    help="Crashes of redrive during a message before it is parked. With none they are not counted, and a message"
    " answered 425 is requeued by a plain nack, which keeps its x-death.",
)
@click.option("--secret-file", metavar="FILE", help="Signs requests; a secret a line. Else REDRIVE_PUSH_SECRET.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="Goes with every request; repeatable.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics, /healthz and /readyz there.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True)
@click.option(
    "--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info", show_default=True
)
@click.option("--log-format", type=click.Choice(("json", "text")), help="By default text on a terminal, else json.")
def push_command(
    queue: str,
    to: str,
    file: str,
    existing: str | None,
    has_dead_letter_exchange: bool,
    url: str | None,
    no_wait: bool,
    concurrency: int,
    timeout: str,
    connect_timeout: str,
    pause_after: int | None,
    pause_on_timeouts: bool,
    other_4xx: str | None,
    crashes_max: str,
    secret_file: str | None,
    headers: tuple[str, ...],
    metrics_port: int | None,
    metrics_host: str,
    log_level: str,
    log_format: str | None,
) -> None:
    """Deliver QUEUE's messages to a service by HTTP POST; its status says what becomes of each.

    2xx is done; 425 comes again in a moment, uncounted; 408, 409, 429, 5xx, 3xx, timeouts and lost connections are
    retried by the queue's policy, not before Retry-After; other 4xx are parked, unless FILE or --other-4xx says retry.
    Ctrl-C or SIGTERM ends it in order.

    \b
    Examples:
      redrive push orders --to http://localhost:3000/orders
      redrive push orders --to https://shop.internal/hooks --secret-file secret.txt --metrics-port 9102
      redrive push legacy.queue --existing reject --to http://localhost:3000/
    """
    if existing is not None and _is_given("file"):
        raise click.UsageError("--file declares QUEUE and --existing says that no file does; give one of them.")
    if has_dead_letter_exchange and existing != "reject":
        raise click.UsageError("--has-dead-letter-exchange is for --existing reject; leave it out.")
    secrets, secrets_from = _secrets(secret_file)
    target = push_target(
        url=to,
        timeout=timeout,
        connect_timeout=connect_timeout,
        concurrency=concurrency,
        secrets=secrets,
        secrets_from=secrets_from,
        headers=headers,
    )

    def started(prepared: PreparedApp) -> None:
        announce_start(
            f"{queue} → {target.shown}  from {prepared.target.address}; Ctrl-C ends it", log_format=log_format
        )

    run_push(
        target,
        PushedQueue(
            name=queue,
            file=file,
            existing=cast(Existing | None, existing),
            has_dead_letter_exchange=has_dead_letter_exchange,
            pause_after=pause_after,
            pause_on_timeouts=pause_on_timeouts,
            crashes_max=_crashes_max(crashes_max),
            other_4xx=cast(Other4xx | None, other_4xx),
        ),
        url=url,
        waits=not no_wait,
        telemetry_options=TelemetryOptions(
            log_level=log_level,
            log_format=cast(Literal["json", "text"] | None, log_format),
            metrics_host=metrics_host,
            metrics_port=metrics_port,
        ),
        started=started,
    )


def _crashes_max(text: str) -> int | None:
    if text.lower() == "none":
        return None
    if not (text.isascii() and text.isdigit()) or int(text[:9]) < 2:
        raise click.UsageError(f"--crashes-max: {text[:20]!r} is neither a number from 2 on nor none.")
    return int(text[:9])


def _is_given(parameter: str) -> bool:
    """Whether somebody wrote it, and it is not the default."""
    return click.get_current_context().get_parameter_source(parameter) is not click.core.ParameterSource.DEFAULT


def _secrets(path: str | None) -> tuple[str | None, str]:
    """What signs the requests, and where it is from."""
    if path is None:
        return os.environ.get("REDRIVE_PUSH_SECRET"), "REDRIVE_PUSH_SECRET"
    return read_text(path, hint_if_missing="name the file that has the secret, at least 16 bytes of it"), path
