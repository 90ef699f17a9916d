"""`redrive simulate`: a message's timeline in virtual time."""

import json
import sys

import click

from redrive.cli.console import EXIT_FOUND, wants_colour, warn
from redrive.simulation import PublishRoute, as_json, as_text, simulate
from redrive.wiring import PROFILES, load_file


@click.command("simulate")
@click.argument("file")
@click.option("--queue", required=True, metavar="Q", help="The queue whose consumer gets the message.")
@click.option("--fail", type=click.IntRange(0, 10_000), metavar="N", help="The handler fails N times, then succeeds.")
@click.option("--script", metavar="WORDS", help="What the handler does, run by run; the last word repeats.")
@click.option("--profile", type=click.Choice(PROFILES), default=PROFILES[-1], show_default=True)
@click.option("--exchange", metavar="NAME", help="Where it is published; by default where the queue is bound to.")
@click.option("--key", metavar="KEY", help="The routing key it is published with, together with --exchange.")
@click.option("--vhost", metavar="V", help="Where the queue is, if the file has it in several vhosts.")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
def simulate_command(
    file: str,
    queue: str,
    fail: int | None,
    script: str | None,
    profile: str,
    exchange: str | None,
    key: str | None,
    vhost: str | None,
    form: str,
) -> None:
    """Show a message's life on a queue of FILE: each run, each wait, and where it ends.

    No broker is needed and no time passes. FILE is a redrive.yaml, whose consumer decides as Redrive's does, or a
    definitions.json, whose consumer says what the script says. Without --fail or --script every run fails (of a
    definitions.json: is rejected).

    \b
    Words: ok fail timeout undecodable 503 429:30s retry-after:2m requeue park
    and what a consumer tells the broker itself: crash reject nack return

    \b
    Exit codes: 0 handled or parked; 1 lost, stuck, or without end; 2 could not.

    \b
    Examples:
      redrive simulate redrive.yaml --queue orders --fail 3
      redrive simulate redrive.yaml --queue orders --script "fail*2,retry-after:2m,crash,ok"
      redrive simulate definitions.json --queue orders --script reject --profile 3.10
    """
    if fail is not None and script is not None:
        raise click.UsageError("--fail and --script both say what the handler does; give one of them.")
    if key is not None and exchange is None:
        raise click.UsageError('--key needs --exchange; --exchange "" is the default exchange.')
    loaded = load_file(file)
    warn(loaded.warnings)
    timeline, left_out = simulate(
        loaded.topology,
        queue=queue,
        compiled=loaded.compiled,
        script=script,
        fail=fail,
        profile=profile,
        vhost=vhost,
        publish_to=None if exchange is None else PublishRoute(exchange=exchange, key="" if key is None else key),
    )
    warn(left_out)
    if form == "json":
        click.echo(json.dumps(as_json(timeline), indent=2, ensure_ascii=False))
    else:
        colour = wants_colour(sys.stdout)
        click.echo(as_text(timeline, colour=colour), nl=False, color=colour)
    if not timeline.is_safe:
        raise SystemExit(EXIT_FOUND)
