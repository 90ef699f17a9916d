"""Exchanges and their bindings: which destinations get a message with these keys and headers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from redrive import wire
from redrive.embedded.engine.headers_match import headers_match
from redrive.embedded.engine.messages import Message
from redrive.embedded.engine.topic_trie import TopicTrie

if TYPE_CHECKING:
    from redrive.embedded.engine.queues import Queue

Destination: TypeAlias = "Queue | Exchange"


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A way from an exchange to a queue or another exchange."""

    source: "Exchange"
    destination: Destination
    routing_key: str
    arguments: Mapping[str, Any]


class Exchange:
    """An exchange. `alternate` is where a message goes that no binding takes, by argument or policy."""

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = dict(arguments or {})
        self.alternate: str | None = self.arguments.get("alternate-exchange")
        self.bindings: dict[tuple[object, ...], Binding] = {}
        self._by_key: dict[str, list[Destination]] = {}
        self._topics: TopicTrie[Destination] = TopicTrie()

    def bind(self, binding: Binding) -> bool:
        """Add a binding; False if there is one like it."""
        place = _place(binding.destination, binding.routing_key, binding.arguments)
        if place in self.bindings:
            return False
        self.bindings[place] = binding
        if self.kind == "topic":
            self._topics.add(binding.routing_key, binding.destination)
        else:
            self._by_key.setdefault(binding.routing_key, []).append(binding.destination)
        return True

    def unbind(self, destination: Destination, routing_key: str, arguments: Mapping[str, Any]) -> bool:
        """Take a binding away; False if there is none like it."""
        binding = self.bindings.pop(_place(destination, routing_key, arguments), None)
        if binding is None:
            return False
        if self.kind == "topic":
            self._topics.remove(routing_key, destination)
        else:
            bound = self._by_key[routing_key]
            bound.remove(destination)
            if not bound:
                del self._by_key[routing_key]
        return True

    def destinations(self, message: Message) -> list[Destination]:
        """Everything the message goes to from here, possibly with repetitions."""
        match self.kind:
            case "direct":
                if len(message.keys) == 1:
                    return self._by_key.get(message.keys[0], [])
                return [one for key in message.keys for one in self._by_key.get(key, ())]
            case "topic":
                return [one for key in message.keys for one in self._topics.match(key)]
            case "fanout":
                return [binding.destination for binding in self.bindings.values()]
            case _:
                headers = wire.Properties(message.header).headers
                return [
                    binding.destination
                    for binding in self.bindings.values()
                    if headers_match(binding.arguments, headers)
                ]


def _place(destination: Destination, routing_key: str, arguments: Mapping[str, Any]) -> tuple[object, ...]:
    return id(destination), routing_key, repr(sorted(arguments.items(), key=lambda item: item[0]))
