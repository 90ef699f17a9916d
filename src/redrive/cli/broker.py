"""`redrive broker`: the embedded broker as a program, for development and demonstrations."""

import click

from redrive.cli.console import say
from redrive.wiring import PROFILES, EmbeddedBrokerOptions, run_broker


@click.command("broker")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=5672, show_default=True, type=click.IntRange(0, 65535), help="0 takes any free port.")
@click.option("--profile", type=click.Choice(PROFILES), default=PROFILES[-1], show_default=True)
@click.option("--definitions", "file", help="A definitions.json or redrive.yaml to declare at the start.")
@click.option("--management-port", type=click.IntRange(0, 65535), help="Serve a management API too; 0: any free port.")
@click.option(
    "--time",
    type=click.Choice(("real", "automatic")),
    default="real",
    show_default=True,
    help="automatic: jump to the next deadline whenever nothing is being processed.",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="NAME:PASSWORD[:TAGS]",
    help="A user beside guest; tags with commas, such as administrator or impersonator. Repeatable.",
)
def broker_command(
    host: str, port: int, profile: str, file: str | None, management_port: int | None, time: str, users: tuple[str, ...]
) -> None:
    """Run an embedded broker that behaves like RabbitMQ.

    It speaks AMQP 0-9-1 to any client, keeps everything in memory, and is for development and tests: production is
    RabbitMQ. Ctrl-C ends it.

    \b
    Examples:
      redrive broker
      redrive broker --port 0 --profile 3.10 --definitions redrive.yaml
      redrive broker --time automatic      # a 30-minute retry in milliseconds
      redrive broker --user relay:secret:impersonator
    """
    topology = None
    if file is not None:
        from redrive.wiring import load_file

        topology = load_file(file).topology
    options = EmbeddedBrokerOptions(
        host=host,
        port=port,
        profile=profile,
        time=time,
        management_port=management_port,
        users=dict(_read_user(text) for text in users),
    )
    run_broker(options, topology=topology, started=say)


def _read_user(text: str) -> tuple[str, tuple[str, tuple[str, ...]]]:
    name, colon, rest = text.partition(":")
    password, _, tags = rest.partition(":")
    if not name or not colon:
        raise click.BadParameter(
            f"{text!r} is no NAME:PASSWORD[:TAGS], such as relay:secret:impersonator", param_hint="--user"
        )
    return name, (password, tuple(tag.strip() for tag in tags.split(",") if tag.strip()))
