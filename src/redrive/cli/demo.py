"""`redrive demo`: every way an order can go wrong, and where each one ends."""

import sys

import click

from redrive.cli.console import EXIT_FOUND, wants_colour
from redrive.demo import run_demo


@click.command("demo")
@click.option("--once", is_flag=True, help="Every kind of order once, then the account. Without it: until Ctrl-C.")
@click.option("--url", help="A real RabbitMQ instead of an embedded broker. Its queues have names of their own.")
def demo_command(once: bool, url: str | None) -> None:
    """Watch orders fail, wait, come back and be parked; then see every one accounted for.

    It runs on an embedded broker unless --url names another (REDRIVE_URL is not asked), where it declares queues that
    begin with redrive-demo- and deletes them at the end.

    \b
    Exit codes: 0 every message is accounted for; 1 one is not; 2 could not.

    \b
    Examples:
      redrive demo --once
      redrive demo --url amqp://guest:guest@localhost:5672/
    """
    colour = wants_colour(sys.stdout)

    def write(text: str) -> None:
        click.echo(text, color=colour)
        sys.stdout.flush()

    if not run_demo(url=url, once=once, write=write, colour=colour):
        raise SystemExit(EXIT_FOUND)
