"""Seeded bugs of routing: which queues a message reaches."""

from tests.mutations.mutation import Mutation

AREA = "Exchanges"

BUGS = (
    Mutation(
        name="hash-needs-a-word",
        area=AREA,
        file="engine/topic_trie.py",
        old="for further in range(at, count + 1)]",
        new="for further in range(at + 1, count + 1)]",
        sees="A queue bound with `orders.#` does not get `orders`.",
    ),
    Mutation(
        name="star-takes-any-number",
        area=AREA,
        file="engine/topic_trie.py",
        old='any_number = node.next.get("#")',
        new='any_number = node.next.get("#") or node.next.get("*")',
        sees="A queue bound with `orders.*` gets `orders.eu.created` too.",
    ),
    Mutation(
        name="headers-any-and-all-swapped",
        area=AREA,
        file="engine/headers_match.py",
        old='return any(hits) if kind.startswith("any") else all(hits)',
        new='return all(hits) if kind.startswith("any") else any(hits)',
        sees="A headers binding with `x-match: all` takes what fits one header, one with `any` only what fits all.",
    ),
    Mutation(
        name="headers-compare-x-arguments",
        area=AREA,
        file="engine/headers_match.py",
        old='(with_x or not name.startswith("x-"))',
        new="True",
        sees="A headers binding with an `x-…` argument asks messages for that header, though it should not count.",
    ),
    Mutation(
        name="one-copy-per-binding",
        area=AREA,
        file="engine/routing.py",
        old="taking[id(destination)] = destination",
        new="taking[len(taking)] = destination",
        sees="A queue with two bindings that match gets the message twice.",
    ),
    Mutation(
        name="alternate-always",
        area=AREA,
        file="engine/routing.py",
        old="if not destinations and here.alternate is not None",
        new="if here.alternate is not None",
        sees="The alternate exchange gets messages that a binding took.",
    ),
    Mutation(
        name="direct-ignores-cc",
        area=AREA,
        file="engine/exchanges.py",
        old="return [one for key in message.keys for one in self._by_key.get(key, ())]",
        new="return list(self._by_key.get(message.keys[0], ()))",
        sees="On a direct exchange the keys of CC and BCC reach nobody.",
    ),
    Mutation(
        name="unbound-still-routes",
        area=AREA,
        file="engine/exchanges.py",
        old="bound.remove(destination)",
        new="pass",
        sees="A queue unbound from a direct exchange goes on getting its messages.",
    ),
)
