"""`redrive run`: an app's handlers at work, in one process or several."""

import sys
from typing import Literal, cast

import click

from redrive.cli.console import announce_start
from redrive.cli.secret_files import with_broker_files
from redrive.core import InvalidDuration, parse_duration_ms
from redrive.runtime import AppRunOptions
from redrive.wiring import PreparedApp, TelemetryOptions, load_app, run_app_command, run_workers, take_worker_url


@click.command("run")
@click.argument("app", metavar="MODULE:APP")
@with_broker_files
@click.option("--url", help="The broker: amqp(s)://user:password@host:port/vhost.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 256), help="Processes.")
@click.option("--apply", "declare", is_flag=True, help="Declare what is missing first; otherwise nothing is declared.")
@click.option("--no-wait", is_flag=True, help="Fail if queues are missing, instead of waiting for them.")
@click.option(
    "--grace", default="25s", show_default=True, metavar="T", help="Time for running handlers when it is stopped."
)
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics, /healthz and /readyz there.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True)
@click.option(
    "--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info", show_default=True
)
@click.option("--log-format", type=click.Choice(("json", "text")), help="By default text on a terminal, else json.")
@click.option("--as-worker", is_flag=True, hidden=True)
def run_command(
    app: str,
    url: str | None,
    workers: int,
    declare: bool,
    no_wait: bool,
    grace: str,
    metrics_port: int | None,
    metrics_host: str,
    log_level: str,
    log_format: str | None,
    as_worker: bool,
) -> None:
    """Run the handlers of MODULE:APP.

    A handler that returns acks its message; one that raises has it retried by its queue's policy. SIGTERM or Ctrl-C
    stops in order: no new messages; running handlers get --grace; the rest is requeued; exit code 0. With
    --workers the nth process, counted from 0, serves metrics on --metrics-port + n.

    \b
    Examples:
      redrive run shop.orders:app
      redrive run shop.orders:app --workers 4 --url amqp://shop:…@broker/shop
      redrive run shop.orders:app --apply --metrics-port 9102
    """
    try:
        grace_s = parse_duration_ms(grace) / 1000
    except InvalidDuration as error:
        raise click.UsageError(f"--grace: {error}") from None
    if as_worker:
        url = take_worker_url()
    loaded = load_app(app)
    telemetry_options = TelemetryOptions(
        log_level=log_level,
        log_format=cast(Literal["json", "text"] | None, log_format),
        metrics_host=metrics_host,
        metrics_port=metrics_port,
    )
    if workers > 1:
        arguments = [app, "--grace", grace, "--metrics-host", metrics_host, "--log-level", log_level, "--as-worker"]
        arguments += [] if log_format is None else ["--log-format", log_format]
        arguments += [flag for flag, wanted in (("--apply", declare), ("--no-wait", no_wait)) if wanted]
        code = run_workers(loaded, arguments, workers, url=url, grace_s=grace_s, telemetry_options=telemetry_options)
        sys.exit(code)

    def started(prepared: PreparedApp) -> None:
        queues = ", ".join(one.plan.name for one in prepared.consumptions)
        announce_start(f"Consuming {queues} of {prepared.target.address}; Ctrl-C ends it", log_format=log_format)

    run_app_command(
        loaded,
        url=url,
        declare=declare,
        options=AppRunOptions(grace_s=grace_s, wait_for_topology=not no_wait),
        telemetry_options=telemetry_options,
        started=(lambda _: None) if as_worker else started,
        is_worker=as_worker,
    )
