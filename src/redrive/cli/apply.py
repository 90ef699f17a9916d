"""`redrive apply`: declare what is missing on a broker, in a safe order; change nothing that differs."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import quote

import click

from redrive.cli.console import EXIT_COULD_NOT, EXIT_FOUND, ask, keep_result, say, wants_colour, warn, write
from redrive.cli.secret_files import with_broker_files
from redrive.cli.text_tables import printable
from redrive.core import Finding, InvalidDeclaration, InvalidDuration, parse_duration_ms
from redrive.deploy import Difference, Inspection
from redrive.topology import Topology
from redrive.wiring import (
    Applied,
    LoadedFile,
    apply_topology,
    broker_url,
    explain_refusals,
    load_file,
    management_of,
    permissions_hint,
    target_of,
)
from redrive.wiring import management_url as management_setting

_MANAGEMENT_S_MAX = 5.0
"""It is only asked which bindings there are; where it is guessed, it may not be there at all."""


@click.command("apply")
@click.argument("file")
@with_broker_files
@click.option("--url", help="The broker: amqp(s)://user:password@host:port/vhost. Its vhost wins over the file's.")
@click.option("--management-url", metavar="URL", help="Its management API, asked for bindings; guessed from --url.")
@click.option("--wait", metavar="T", help="Wait so long for a broker that is not up yet, such as 60s; else it fails.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
def apply_command(
    file: str, url: str | None, management_url: str | None, wait: str | None, yes: bool, form: str
) -> None:
    """Declare FILE's topology on a broker.

    What is missing is declared, targets before sources. If anything exists with other settings, nothing is changed and
    the first difference of each is named. AMQP can't tell which bindings exist: the management API is asked, and if it
    does not answer, all are made again, and that is said.

    \b
    Examples:
      redrive apply redrive.yaml --url amqp://guest:guest@localhost:5672/ --yes
      redrive apply redrive.yaml --wait 60s --yes
      REDRIVE_URL=amqps://deploy:…@broker/shop redrive apply redrive.yaml
    """
    keep_result()
    wait_s = _seconds(wait)
    loaded = load_file(file)
    warn(loaded.warnings)
    setting = broker_url(flag=url, environment=os.environ, file=loaded.broker, file_name=file)
    target = target_of(setting, vhost="")  # "": the URL names none
    management = management_setting(flag=management_url, environment=os.environ)
    vhost, topology = _one_vhost(loaded, target.vhost or None)
    target = replace(target, vhost=vhost)
    with explain_refusals(target, setting, file=file):
        applied = apply_topology(
            topology,
            compiled=loaded.compiled,
            target=target,
            management=management_of(target, management, timeout_s=_MANAGEMENT_S_MAX),
            confirm=lambda one, reason: yes or _confirmed(one, len(topology.bindings), reason),
            wait_s=wait_s,
            waiting=lambda reason: say(f"Waiting up to {wait} for the broker: {reason}"),
        )
    if form == "json":
        write(json.dumps(_as_json(applied), indent=2, ensure_ascii=False))
    else:
        _print(applied, file)
    if applied.declared is None:
        raise SystemExit(EXIT_COULD_NOT)
    if applied.inspection.left_out or applied.left:
        raise SystemExit(EXIT_FOUND)


def _one_vhost(loaded: LoadedFile, said: str | None) -> tuple[str, Topology]:
    """A connection leads to one vhost: the URL's if it names one, else the file's own."""
    topology = loaded.topology
    used = topology.used_vhosts() or [one.name for one in topology.vhosts[:1]] or ["/"]
    if len(used) == 1:
        vhost = used[0] if said is None else said
        return vhost, topology if vhost == used[0] else topology.moved(vhost)
    if said is None or said not in used:
        summary = f"has objects in the vhosts {', '.join(used)}, and a connection leads to one"
        hint = f"name it in the URL: …/{quote(used[0], safe='')}"
        raise InvalidDeclaration([Finding(code="several-vhosts", address="the file", summary=summary, hint=hint)])
    return said, topology.only(said)


def _seconds(wait: str | None) -> float:
    if wait is None:
        return 0.0
    try:
        return parse_duration_ms(wait) / 1000
    except InvalidDuration as error:
        raise click.UsageError(f"--wait: {error}") from None


def _confirmed(inspection: Inspection, bindings: int, reason: str) -> bool:
    """Asks a person; nobody there to ask is no."""
    is_unknown = inspection.missing_bindings is None
    if not inspection.missing and not is_unknown:
        return True
    for address in inspection.missing:
        say(f"  + {address}")
    if is_unknown:
        say(printable(f"  ? {_many(bindings)}: which of them exist only the management API could tell, and {reason}"))
    if not sys.stdin.isatty():
        say("Nothing was changed: say --yes to declare these.")
        return False
    objects = len(inspection.missing) + (bindings if is_unknown else 0)
    if ask(f"Declare these {objects} objects?"):
        return True
    say("Nothing was changed.")
    return False


def _print(applied: Applied, file: str) -> None:
    colour = wants_colour(sys.stdout)
    inspection = applied.inspection
    for difference in applied.differences:
        write(click.style(f"  ≠ {difference.text}", fg="red"), colour=colour)
    if applied.differences:
        own = (f"{one[0].upper()}{one[1:]}." for one in applied.advice)
        write(f"Nothing was changed. {' '.join((*_advice(applied.differences, file), *own))}")
        return
    if applied.declared is None:
        return
    for address in applied.declared:
        write(click.style(f"  + {address}", fg="green"), colour=colour)
    for difference, command in applied.left:
        text = f"  ! {difference.text}; left as it is: consumers park what fails by publishing, what else dies in it"
        write(
            click.style(f"{text} the broker drops. Give it these settings with: {command}", fg="yellow"), colour=colour
        )
    for address in inspection.left_out:
        click.secho(f"  ! {address}: not applied, policies need the management API", fg="yellow", color=colour)
    made = f"{len(applied.declared)} declared" if applied.declared else "nothing missing"
    bindings = _many(applied.bindings)
    if applied.bindings_unknown:
        made = f"{len(applied.declared)} declared" if applied.declared else "no queue or exchange missing"
        reason = f"which of them were missing is not known: {applied.bindings_unknown}"
        write(click.style(f"  ? {bindings} made; {reason}", fg="yellow"), colour=colour)
    write(f"{made}, {bindings} in place (RabbitMQ {applied.server_version}).")


def _many(bindings: int) -> str:
    return "1 binding" if bindings == 1 else f"{bindings} bindings"


def _advice(differences: tuple[Difference, ...], file: str) -> Iterator[str]:
    """What to do about each kind of difference, a sentence each."""
    if any(one.is_forbidden for one in differences):
        rights = permissions_hint(file)
        yield f"{rights[0].upper()}{rights[1:]}"
    kinds = {one.address.partition(" ")[0] for one in differences if not one.is_forbidden}
    if "queue" in kinds:
        yield "RabbitMQ can't change a queue in place: rename it in the file, or delete it once it is empty."
    if "exchange" in kinds:
        yield "RabbitMQ can't change an exchange in place: rename it in the file, or delete it with its bindings."


def _as_json(applied: Applied) -> dict[str, Any]:
    return {
        "applied": applied.declared is not None,
        "declared": list(applied.declared or ()),
        "bindings": applied.bindings,
        "bindings_unknown": applied.bindings_unknown or None,
        "differences": [asdict(one) for one in applied.differences],
        "left_as_they_are": [asdict(one) | {"migrate_with": command} for one, command in applied.left],
        "advice": list(applied.advice),
        "left_out": list(applied.inspection.left_out),
        "server_version": applied.server_version,
    }
