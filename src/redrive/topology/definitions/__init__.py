"""definitions.json, both ways: RabbitMQ's own file format, read into the model and written from it."""

from redrive.topology.definitions.reader import Definitions, parse_definitions, read_definitions
from redrive.topology.definitions.writer import rewrite_definitions, write_definitions

__all__ = ["Definitions", "parse_definitions", "read_definitions", "rewrite_definitions", "write_definitions"]
