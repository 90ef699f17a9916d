"""A queue as the management API shows it, read once and made a value. What it does not say (yet) is None.

The API's numbers are seconds old, and a queue just declared has none at all until the statistics come round.
"""

from dataclasses import dataclass
from typing import Any

from redrive.topology import NO_ARGUMENTS, Arguments, PolicyMatcher, Queue, QueueType, queue_settings

COLUMNS = (
    "name,vhost,type,durable,auto_delete,exclusive,arguments,policy,operator_policy,effective_policy_definition,"
    "messages,messages_ready,messages_unacknowledged,consumers,state"
)
"""All that is asked for of each queue of a list: a tenth of what would come."""

MANY_DELIVERIES = 1_000_000
"""From here on a delivery limit is no limit in practice (facts on delivery limits)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """One queue of a broker. `policy_arguments` are what policies add, in the names policies use."""

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

    def delivery_limit(self, book: PolicyMatcher | None = None) -> int | None:
        """The limit that arguments and policies set, None if none does: then the version's default holds.

        `book` has the vhost's policies: what a queue shows of them is seconds old, and a young one shows none. Where
        the two disagree, or -1 (none) meets a number, the number that bites first is told.
        """
        found = self._numbers("delivery-limit", book)
        return min((one for one in found if one >= 0), default=min(found, default=None))

    def max_length(self, book: PolicyMatcher | None = None) -> int | None:
        """How many messages it may hold, None if as many as there are."""
        return min(self._numbers("max-length", book), default=None)

    def _numbers(self, key: str, book: PolicyMatcher | None) -> list[int]:
        values = [self.arguments.get(f"x-{key}")]
        if self.policy_arguments is not None:
            values.append(self.policy_arguments.get(key))
        if book is not None:
            values += [one.definition.get(key) for one in book.for_queue(self.queue) if one is not None]
        return [one for one in values if isinstance(one, int) and not isinstance(one, bool)]

    def dead_letter_exchange(self, book: PolicyMatcher) -> str | None:
        """Where its own dead letters go."""
        return queue_settings(self.queue, book).dead_letter_exchange


def read_queue(shown: Any) -> QueueInfo | None:
    """From the API's JSON; None for what is no queue with a name."""
    if not isinstance(shown, dict) or not isinstance(shown.get("name"), str):
        return None
    arguments = shown.get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}
    policies = shown.get("effective_policy_definition")
    # Erlang has one word for an empty list and an empty object: [] is what 3.10 shows for none.
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
