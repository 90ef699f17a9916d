"""Routing: the queues that a message published to an exchange reaches, by the bindings of a topology.

Every exchange gets an index over its bindings (a map of keys, or a trie of topic patterns), and results are cached, so
that the time is linear for ten thousand queues. Headers exchanges and those of plugins do not decide by the key; for
them every destination is a possible one.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from redrive.topology.model import DEFAULT_EXCHANGE, Binding, DestinationType, Exchange, ExchangeType

Node = tuple[str, str]
"""A name in a vhost: (vhost, name)."""


class Routing:
    """The routes of a topology."""

    def __init__(
        self,
        exchanges: dict[Node, Exchange],
        queues: Iterable[Node],
        bindings: Iterable[Binding],
        alternates: dict[Node, str],
    ) -> None:
        self._exchanges = exchanges
        self._queues = frozenset(queues)
        self._alternates = alternates
        self.from_exchange: dict[Node, list[Binding]] = defaultdict(list)
        self.to_queue: dict[Node, list[Binding]] = defaultdict(list)
        self.to_exchange: dict[Node, list[Binding]] = defaultdict(list)
        for binding in bindings:
            target = binding.vhost, binding.destination
            self.from_exchange[binding.vhost, binding.source].append(binding)
            to_queue = binding.destination_type == DestinationType.QUEUE
            (self.to_queue if to_queue else self.to_exchange)[target].append(binding)
        self._tables: dict[Node, _Table] = {}
        self._known: dict[tuple[Node, str | None], tuple[Node, ...]] = {}

    def targets(self, exchange: Node, key: str | None) -> tuple[Node, ...]:
        """The queues a message with this key reaches; with None, all it could reach under some key."""
        if exchange[1] == DEFAULT_EXCHANGE:
            queue = exchange[0], key or ""
            return (queue,) if queue in self._queues else ()
        asked = exchange, key
        if asked not in self._known:
            self._known[asked] = tuple(self._walk(exchange, key))
        return self._known[asked]

    def targets_keeping_key(self, exchange: Node, source: Node) -> tuple[Node, ...]:
        """The queues a message of `source` reaches that is dead-lettered under the key it came with.

        The keys of the source's own bindings stand in for that key; when none of them is routed, any key may be.
        """
        if exchange[1] == DEFAULT_EXCHANGE:
            return ()
        found: dict[Node, None] = {}
        for binding in self.to_queue.get(source, ()):
            found.update(dict.fromkeys(self.targets(exchange, binding.routing_key)))
        return tuple(found) or self.targets(exchange, None)

    def _walk(self, start: Node, key: str | None) -> Iterator[Node]:
        seen_exchanges, seen_queues, pending = {start}, set(), [start]
        while pending:
            exchange = pending.pop()
            matched = self._matching(exchange, key)
            for binding in matched:
                target = binding.vhost, binding.destination
                if binding.destination_type == DestinationType.EXCHANGE:
                    if target not in seen_exchanges:
                        seen_exchanges.add(target)
                        pending.append(target)
                elif target not in seen_queues and target in self._queues:
                    seen_queues.add(target)
                    yield target
            alternate = exchange[0], self._alternates.get(exchange, "")
            if not matched and alternate[1] and alternate not in seen_exchanges:
                seen_exchanges.add(alternate)
                pending.append(alternate)

    def _matching(self, exchange: Node, key: str | None) -> list[Binding]:
        bindings = self.from_exchange.get(exchange, [])
        declared = self._exchanges.get(exchange)
        if key is None or declared is None or not bindings:
            return bindings
        match declared.type:
            case ExchangeType.DIRECT | ExchangeType.TOPIC:
                if exchange not in self._tables:
                    self._tables[exchange] = _Table(bindings, topic=declared.type == ExchangeType.TOPIC)
                return self._tables[exchange].matching(key)
            case _:
                return bindings


class _Table:
    """Bindings by key. Topic patterns are a trie, matched by a set of its nodes at once, so that no pattern is
    costly."""

    def __init__(self, bindings: Iterable[Binding], *, topic: bool) -> None:
        self._topic = topic
        self._root = _TrieNode()
        for binding in bindings:
            place = self._root
            for word in self._words(binding.routing_key):
                place = place.next.setdefault(word, _TrieNode(repeats=topic and word == "#"))
            place.bindings.append(binding)

    def matching(self, key: str) -> list[Binding]:
        places = self._reached([self._root])
        for word in self._words(key):
            places = self._reached(after for place in places for after in self._after(place, word))
        return [binding for place in places for binding in place.bindings]

    def _words(self, key: str) -> list[str]:
        if not self._topic:
            return [key]
        return key.split(".") if key else []

    def _after(self, place: "_TrieNode", word: str) -> Iterator["_TrieNode"]:
        if place.repeats:
            yield place
        # A key's own "#" or "*" is a plain word, which only a wildcard can match.
        for step in dict.fromkeys((word, "*") if self._topic else (word,)):
            if step in place.next and not (step == "#" and self._topic):
                yield place.next[step]

    def _reached(self, places: Iterable["_TrieNode"]) -> list["_TrieNode"]:
        found: dict[int, _TrieNode] = {}
        pending = list(places)
        while pending:
            place = pending.pop()
            if id(place) not in found:
                found[id(place)] = place
                if self._topic and "#" in place.next:
                    pending.append(place.next["#"])
        return list(found.values())


class _TrieNode:
    __slots__ = ("bindings", "next", "repeats")

    def __init__(self, *, repeats: bool = False) -> None:
        self.next: dict[str, _TrieNode] = {}
        self.bindings: list[Binding] = []
        self.repeats = repeats
