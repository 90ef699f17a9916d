"""A queue as the management API shows it. What the API does not say (yet) is None.

The API's numbers are seconds old, and a queue that was just declared has none until the next statistics.
"""

from dataclasses import dataclass
from typing import Any

from redrive.topology import NO_ARGUMENTS, Arguments, PolicyMatcher, Queue, QueueType

COLUMNS = (
    "name,vhost,type,durable,auto_delete,exclusive,arguments,policy,operator_policy,effective_policy_definition,"
    "messages,messages_ready,messages_unacknowledged,consumers,state"
)
"""The columns of a list of queues that are asked for: a tenth of what would come otherwise."""

MANY_DELIVERIES = 1_000_000
"""From here on a delivery limit is none in practice (facts on delivery limits)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """One queue of a broker. `policy_arguments` are what policies add, by the names that policies use."""

    vhost: str
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    arguments: Arguments = NO_ARGUMENTS
    policy: str | None = None
    policy_arguments: Arguments | None = None
    messages: int | None = None
    messages_ready: int | None = None
    messages_unacknowledged: int | None = None
    consumers: int | None = None

    @property
    def queue(self) -> Queue:
        """The queue as a topology has it."""
        arguments = Arguments({**self.arguments, "x-queue-type": self.type})
        return Queue(
            name=self.name, vhost=self.vhost, durable=self.durable, auto_delete=self.auto_delete, arguments=arguments
        )

    def delivery_limit(self, policies: PolicyMatcher | None = None) -> int | None:
        """The limit that arguments and policies set, None if they set none: then the version's default holds.

        `policies` are the vhost's: what a queue shows of them is seconds old, and a new queue shows none. Where
        the two disagree, or one is -1 (no limit), the lowest limit counts.
        """
        found = self._numbers("delivery-limit", policies)
        return min((one for one in found if one >= 0), default=min(found, default=None))

    def max_length(self, policies: PolicyMatcher | None = None) -> int | None:
        """How many messages it may hold, None if there is no limit."""
        return min(self._numbers("max-length", policies), default=None)

    def _numbers(self, key: str, policies: PolicyMatcher | None) -> list[int]:
        values = [self.arguments.get(f"x-{key}")]
        if self.policy_arguments is not None:
            values.append(self.policy_arguments.get(key))
        if policies is not None:
            values += [one.definition.get(key) for one in policies.for_queue(self.queue) if one is not None]
        return [one for one in values if isinstance(one, int) and not isinstance(one, bool)]


def read_queue(shown: Any) -> QueueInfo | None:
    """A queue from the API's JSON; None for what is no queue with a name."""
    if not isinstance(shown, dict) or not isinstance(shown.get("name"), str):
        return None
    arguments = shown.get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}
    policies = shown.get("effective_policy_definition")
    # Erlang writes an empty object as an empty list: 3.10 shows [] for none.
    policies = {} if policies == [] else policies
    kind = shown.get("type") or arguments.get("x-queue-type") or QueueType.CLASSIC
    return QueueInfo(
        vhost=str(shown.get("vhost", "/")),
        name=shown["name"],
        type=_TYPES.get(str(kind), str(kind)),
        durable=shown.get("durable") is not False,
        auto_delete=shown.get("auto_delete") is True,
        exclusive=shown.get("exclusive") is True,
        arguments=Arguments(arguments),
        policy=shown.get("policy") if isinstance(shown.get("policy"), str) else None,
        policy_arguments=Arguments(policies) if isinstance(policies, dict) else None,
        messages=_number(shown.get("messages")),
        messages_ready=_number(shown.get("messages_ready")),
        messages_unacknowledged=_number(shown.get("messages_unacknowledged")),
        consumers=_number(shown.get("consumers")),
    )


_TYPES = {"rabbit_classic_queue": "classic", "rabbit_quorum_queue": "quorum", "rabbit_stream_queue": "stream"}
"""Some versions show the name of the module that implements the type."""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
