"""Bindings as the management API shows them, as values of the topology."""

from typing import Any

from redrive.topology import Arguments, Binding, DestinationType


def read_binding(shown: Any) -> Binding | None:
    """From the API's JSON; None for what is no binding that somebody made (every queue has one to the default
    exchange)."""
    if not isinstance(shown, dict) or not shown.get("source"):
        return None
    kind = shown.get("destination_type")
    if kind not in tuple(DestinationType):
        return None
    arguments = shown.get("arguments")
    return Binding(
        source=str(shown["source"]),
        destination=str(shown.get("destination", "")),
        destination_type=DestinationType(kind),
        routing_key=str(shown.get("routing_key", "")),
        vhost=str(shown.get("vhost", "/")),
        # Erlang has one word for an empty list and an empty object.
        arguments=Arguments(arguments if isinstance(arguments, dict) else {}),
    )
