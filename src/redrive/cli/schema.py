"""`redrive schema`: the JSON Schema of redrive.yaml."""

import json

import click

from redrive.topology import declaration_schema


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of redrive.yaml, for editors.

    \b
    Example:
      redrive schema > redrive.schema.json
      # then, as the first line of redrive.yaml:
      # yaml-language-server: $schema=redrive.schema.json
    """
    click.echo(json.dumps(declaration_schema(), indent=2, ensure_ascii=False))
