"""YAML text to plain data, and back from a path in that data to the line it was written on.

libyaml's C parser composes the nodes, which carry their marks; the plain data is built from them here rather than by
PyYAML's constructors, so that duplicate keys are errors, dates stay the text that was written, and a document that
refers to itself or multiplies by aliases is refused in one sentence instead of walked without end.
"""

import re
from typing import Any

import yaml

from redrive.core import Finding, InvalidDeclaration, Position
from redrive.topology.option_types import Path, describe

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_NODES_MAX = 20_000_000  # aliases counted as often as they are used; the largest sane file has a hundredth of it
_DEPTH_MAX = 100
_BRACKETS_MAX = 1_000
_START = yaml.Mark("", 0, 0, 0, None, 0)


_COMPACT_NESTING = re.compile(rf"(?:[-?:] +){{{_DEPTH_MAX + 1}}}")


def _may_nest_deeply(text: str) -> bool:
    """Whether composing could run the C stack out: libyaml itself sets no limit. Brackets in strings count too."""
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > _BRACKETS_MAX:
            return True
    return _COMPACT_NESTING.search(text) is not None


def _before(text: str, mark: Any) -> str:
    """The white space at the start of a line, up to and including the mark; "" if there is other text before it."""
    line = "".join(text.split("\n")[mark.line : mark.line + 1])[: mark.column + 1]
    return line if not line.strip() else ""


class YamlSource:
    """A parsed document: its `data`, and `locate` for the position of a path in it."""

    def __init__(self, text: str, file: str) -> None:
        """Parses. Raises `InvalidDeclaration` for text that is not YAML, or that can't be used."""
        self.file = file
        self._root = self._compose(text)
        self._weights: dict[int, int] = {}
        self._built: dict[int, Any] = {}
        self._open: set[int] = set()
        self._pairs_by_node: dict[int, dict[str, tuple[yaml.Node, yaml.Node]]] = {}
        self._constructor = yaml.constructor.SafeConstructor()
        self.data: Any = None if self._root is None else self._build(self._root, 0)

    def locate(self, path: Path) -> Position:
        """The position of the value at `path`, or of the nearest value around it that is in the text."""
        node = self._root
        found = node
        for step in path:
            match node:
                case yaml.MappingNode():
                    pairs = self._pairs(node)
                    if step not in pairs:
                        break
                    found, node = pairs[step]
                case yaml.SequenceNode() if isinstance(step, int) and step < len(node.value):
                    found = node = node.value[step]
                case _:
                    break
        return self._position(_START if found is None else found.start_mark)

    def _pairs(self, node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        known = self._pairs_by_node.get(id(node))
        if known is None:
            known = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            self._pairs_by_node[id(node)] = known
        return known

    def _compose(self, text: str) -> yaml.Node | None:
        if _may_nest_deeply(text):
            raise self._refusal(f"is nested deeper than {_DEPTH_MAX} levels; write it flatter")
        try:
            loader = _Loader(text)
            try:
                root: yaml.Node | None = loader.get_single_node()
                return root
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            said = " ".join(part for part in (error.context, error.problem) if part)
            if mark is not None and "\t" in _before(text, mark):
                said = "a line begins with a tab; YAML wants spaces"
            raise self._refusal(f"is not YAML: {said or 'it can not be parsed'}", mark) from None
        except (yaml.YAMLError, UnicodeError, RecursionError) as error:
            raise self._refusal(f"is not YAML: {str(error).splitlines()[0] if str(error) else 'unreadable'}") from None

    def _build(self, node: yaml.Node, depth: int) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        identity = id(node)
        if identity in self._built:
            self._count(self._weights[identity], node)
            return self._built[identity]
        if identity in self._open:
            raise self._refusal("refers to itself; write the alias out", node.start_mark)
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            raise self._refusal(f"has a tag that is not known here: {node.tag[:80]}", node.start_mark)
        if depth > _DEPTH_MAX:
            raise self._refusal(f"is nested deeper than {_DEPTH_MAX} levels; write it flatter", node.start_mark)
        self._open.add(identity)
        before = self._weights.get(0, 0)
        built = self._mapping(node, depth) if isinstance(node, yaml.MappingNode) else self._sequence(node, depth)
        self._open.discard(identity)
        self._weights[identity] = self._weights.get(0, 0) - before
        self._built[identity] = built
        return built

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        self._count(len(node.value) + 1, node)
        merged: dict[str, Any] = {}
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                for base in self._merge_bases(value_node, depth):
                    merged = {**base, **merged}
                continue
            key = self._key(key_node)
            if key in built:
                raise self._refusal(f"has {describe(key)} twice; keep one", key_node.start_mark)
            built[key] = self._build(value_node, depth + 1)
        return {**merged, **built} if merged else built

    def _sequence(self, node: yaml.Node, depth: int) -> list[Any]:
        self._count(len(node.value) + 1, node)
        return [self._build(one, depth + 1) for one in node.value]

    def _merge_bases(self, node: yaml.Node, depth: int) -> list[dict[str, Any]]:
        built = self._build(node, depth + 1)
        bases = built if isinstance(built, list) else [built]
        if not all(isinstance(base, dict) for base in bases):
            raise self._refusal("merges (<<) something that is no mapping", node.start_mark)
        return bases

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._refusal("has a key that is no text", node.start_mark)
        if node.tag != f"{_TAG}str":
            raise self._refusal(
                f"has the key {node.value}, which YAML takes for no text; put it in quotes", node.start_mark
            )
        return str(node.value)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        kind = node.tag.removeprefix(_TAG)
        try:
            match kind:
                case "str" | "timestamp" | "value":
                    return str(node.value)
                case "null":
                    return None
                case "bool":
                    return self._constructor.construct_yaml_bool(node)
                case "int":
                    return self._constructor.construct_yaml_int(node)
                case "float":
                    return self._constructor.construct_yaml_float(node)
        except (ValueError, KeyError, IndexError):
            raise self._refusal(
                f"has {node.value[:40]!r}, which is no {kind}; put it in quotes", node.start_mark
            ) from None
        raise self._refusal(f"has a tag that is not known here: {node.tag[:80]}", node.start_mark)

    def _count(self, nodes: int, node: yaml.Node) -> None:
        self._weights[0] = self._weights.get(0, 0) + nodes
        if self._weights[0] > _NODES_MAX:
            raise self._refusal("grows beyond all measure by its aliases; write it out", node.start_mark)

    def _position(self, mark: Any) -> Position:
        return Position(file=self.file, line=mark.line + 1, column=mark.column + 1)

    def _refusal(self, summary: str, mark: Any = None) -> InvalidDeclaration:
        position = self._position(_START if mark is None else mark)
        return InvalidDeclaration(
            [Finding(code="unreadable-yaml", address="the file", summary=summary, position=position)]
        )
