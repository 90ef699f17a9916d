"""`redrive init`: a commented redrive.yaml to start from."""

from pathlib import Path

import click

from redrive.cli.console import say
from redrive.core import UnreadableFile

STARTER = """\
# Queues and how they retry. See it drawn:   redrive compile {file} --format tree
# Turn it into RabbitMQ definitions:         redrive compile {file} > definitions.json
# Completion in your editor:                 redrive schema > redrive.schema.json
# yaml-language-server: $schema=redrive.schema.json

exchanges:
  domain.events: topic            # direct, topic, fanout or headers

queues:
  orders:
    from:
      domain.events: ["orders.#"] # routing keys; for a fanout exchange just  from: NAME
    retry: [30s, 5m, 30m]         # 4 runs: at once, after 30 s, 5 min and 30 min; then parked in orders.parked

  # emails:
  #   from: {{domain.events: ["customer.registered"]}}
  #   retry:
  #     delays: [10s, 1m]
  #     attempts: 5               # runs, the first included; the last delay repeats
  #
  # invoices:                     # other shapes: tiered, service, per-queue, quorum, requeue, native
  #   from: {{domain.events: ["invoices.*"]}}
  #   retry: {{shape: per-queue, delays: [15s], attempts: 3}}
  #
  # audit:
  #   from: {{domain.events: ["#"]}}
  #   retry: false                # no retry

# defaults:                       # merged into every queue, key by key
#   retry: {{delays: [30s, 5m]}}

# services: [billing-api]         # shape service, one line each
# vhost: /
"""


@click.command("init")
@click.argument("file", default="redrive.yaml")
def init_command(file: str) -> None:
    """Write a commented redrive.yaml to start from.

    \b
    Example:
      redrive init
      redrive init services/orders/redrive.yaml
    """
    try:
        text = STARTER.format(file=file).encode()
        with Path(file).open("xb") as output:
            output.write(text)
    except FileExistsError:
        raise UnreadableFile(path=file, reason="is there already", hint="choose another name") from None
    except (OSError, ValueError) as error:
        reason = f"can't be written: {getattr(error, 'strerror', None) or error}"
        raise UnreadableFile(path=file, reason=reason, hint="choose another place") from None
    say(f"Wrote {file}. Next: redrive compile {file} --format tree")
