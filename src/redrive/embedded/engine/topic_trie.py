"""A topic exchange's bindings as a trie of words: `*` is one word, `#` any number of them, none included.

A look-up follows at most three ways at each word, and never a way that no binding has; it visits each pair of trie
node and word at most once, so that a pattern of many `#` can't make it explode. Words are what is between dots, so
`a..b` has an empty one; the empty key has no words at all.
"""

from typing import Generic, TypeVar

_T = TypeVar("_T")


class _Node(Generic[_T]):
    __slots__ = ("ends", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Node[_T]] = {}
        self.ends: list[_T] = []


class TopicTrie(Generic[_T]):
    """Patterns with what is bound by them."""

    def __init__(self) -> None:
        self._root: _Node[_T] = _Node()

    def add(self, pattern: str, target: _T) -> None:
        """Bind."""
        node = self._root
        for word in _words(pattern):
            node = node.next.setdefault(word, _Node())
        node.ends.append(target)

    def remove(self, pattern: str, target: _T) -> None:
        """Unbind, and forget the ways that lead nowhere any more."""
        path: list[tuple[_Node[_T], str]] = []
        node = self._root
        for word in _words(pattern):
            path.append((node, word))
            if word not in node.next:
                return
            node = node.next[word]
        if target in node.ends:
            node.ends.remove(target)
        for parent, word in reversed(path):
            child = parent.next[word]
            if child.next or child.ends:
                return
            del parent.next[word]

    def match(self, key: str) -> list[_T]:
        """Everything bound by a pattern that matches the key, in no promised order, each as often as it is bound."""
        words = _words(key)
        count = len(words)
        found: list[_T] = []
        seen: set[tuple[int, int]] = set()
        todo: list[tuple[_Node[_T], int]] = [(self._root, 0)]
        while todo:
            node, at = todo.pop()
            place = (id(node), at)
            if place in seen:
                continue
            seen.add(place)
            if at == count:
                found += node.ends
            elif node.next:
                for word in (words[at], "*") if words[at] not in ("*", "#") else ("*",):
                    child = node.next.get(word)
                    if child is not None:
                        todo.append((child, at + 1))
            any_number = node.next.get("#")
            if any_number is not None:
                todo += [(any_number, further) for further in range(at, count + 1)]
        return found


def _words(key: str) -> list[str]:
    return key.split(".") if key else []
