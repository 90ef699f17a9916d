"""Policies as the management API shows them, as values of the topology."""

from typing import Any

from redrive.topology import Arguments, Policy


def read_policy(shown: Any, *, operator: bool) -> Policy | None:
    """From the API's JSON; None for what is no policy."""
    if not isinstance(shown, dict) or not isinstance(shown.get("name"), str):
        return None
    definition = shown.get("definition")
    priority = shown.get("priority", 0)
    return Policy(
        name=shown["name"],
        vhost=str(shown.get("vhost", "/")),
        pattern=str(shown.get("pattern", "")),
        definition=Arguments(definition if isinstance(definition, dict) else {}),
        apply_to=str(shown.get("apply-to", "all")),
        priority=priority if isinstance(priority, int | float) else 0,
        operator=operator,
    )
