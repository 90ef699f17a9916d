"""Every small change that can be made to a module: one place, old text, new text.

A change is the kind of slip a person makes: a wrong comparison, a condition the other way round, a call forgotten, two
arguments swapped, a number one too high. Docstrings, annotations and type aliases are left alone: nothing runs there.
SQL has slips of its own (AND for OR, ASC for DESC, a bound one off), so strings that look like SQL are changed too.
"""

import ast
import hashlib
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "+"),
}
_SQL = re.compile(r"\b(SELECT|UPDATE|DELETE FROM|INSERT INTO|WHERE|ORDER BY|SET|AND|EXISTS)\b")
_SQL_CHANGES = (
    (re.compile(r"\bAND\b"), "OR"),
    (re.compile(r"\bOR\b"), "AND"),
    (re.compile(r"\bASC\b"), "DESC"),
    (re.compile(r"\bDESC\b"), "ASC"),
    (re.compile(r"\bIS NOT NULL\b"), "IS NULL"),
    (re.compile(r"\bIS NULL\b"), "IS NOT NULL"),
    (re.compile(r"\bNOT EXISTS\b"), "EXISTS"),
    (re.compile(r" <= "), " < "),
    (re.compile(r" >= "), " > "),
    (re.compile(r" < "), " <= "),
    (re.compile(r" > "), " >= "),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one file. `start` and `end` are offsets in the file's UTF-8 bytes."""

    path: str
    line: int
    function: str
    operator: str
    start: int
    end: int
    old: str
    new: str
    occurrence: int
    in_function: bool

    @property
    def identity(self) -> str:
        """The same for the same change in the same function, wherever the function moves in its file."""
        parts = (self.path, self.function, self.operator, self.old, self.new, str(self.occurrence))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]

    @property
    def room(self) -> str:
        """The package below `redrive` that the file is in."""
        below = self.path.removeprefix("src/redrive/")
        return below.partition("/")[0] if "/" in below else "wiring"

    def mutated(self, source: bytes) -> bytes:
        """The file with the change in it."""
        assert source[self.start : self.end].decode() == self.old, f"{self.identity} does not fit {self.path} any more"
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants(path: str, source: str) -> list[Mutant]:
    """All changes of a file, from top to bottom; a few of them may be syntax errors (`is_python`)."""
    finder = _Finder(path, source)
    return sorted(finder.find(), key=lambda mutant: (mutant.start, mutant.end, mutant.operator, mutant.new))


def is_python(mutant: Mutant, source: bytes) -> bool:
    """Whether the changed file can be read at all."""
    try:
        ast.parse(mutant.mutated(source))
    except SyntaxError:
        return False
    return True


class _Finder:
    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source
        self._bytes = source.encode()
        self._tree = ast.parse(source)
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._seen: dict[tuple[str, str, str, str], int] = {}
        self._functions = _functions(self._tree)
        self._bodies = [
            (node.body[0].lineno, node.end_lineno or node.lineno)
            for node in ast.walk(self._tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    def find(self) -> Iterator[Mutant]:
        for node in _running_nodes(self._tree):
            for operator, start, end, new in self._changes(node):
                yield self._mutant(operator, start, end, new)
        yield from self._sql()

    def _mutant(self, operator: str, start: int, end: int, new: str) -> Mutant:
        old = self._bytes[start:end].decode()
        line = self._bytes.count(b"\n", 0, start) + 1
        function = self._function(line)
        key = (function, operator, old, new)
        self._seen[key] = self._seen.get(key, 0) + 1
        return Mutant(
            path=self._path,
            line=line,
            function=function,
            operator=operator,
            start=start,
            end=end,
            old=old,
            new=new,
            occurrence=self._seen[key],
            in_function=self._runs_in_function(line),
        )

    def _changes(self, node: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                start, end = self._end(left), self._start(right)
                between = self._bytes[start:end].decode()
                yield "comparison", start, end, _replaced_operator(between, _COMPARISONS[type(op)])
            case ast.BoolOp(op=op, values=[first, second, *_]):
                start, end = self._end(first), self._start(second)
                word, other = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                between = self._bytes[start:end].decode()
                yield "and/or", start, end, re.sub(rf"\b{word}\b", other, between)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield "not", self._start(node), self._start(operand), ""
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(
                test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.NamedExpr
            ):
                yield "condition", self._start(test), self._end(test), f"(not {self._text(test)})"
            case ast.Constant(value=bool() as value):
                yield "true/false", self._start(node), self._end(node), str(not value)
            case ast.Constant(value=int() as number):
                yield "number", self._start(node), self._end(node), str(_other_number(number))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not _is_text(left, right):
                word, other = _ARITHMETIC[type(op)]
                start, end = self._end(left), self._start(right)
                yield "arithmetic", start, end, self._bytes[start:end].decode().replace(word, other, 1)
            case ast.AugAssign(target=target, op=ast.Add(), value=value) if not _is_text(value):
                start, end = self._end(target), self._start(value)
                yield "arithmetic", start, end, self._bytes[start:end].decode().replace("+=", "-=", 1)
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield "call left out", self._start(node), self._end(node), "pass"
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield "returns nothing", self._start(node), self._end(node), "return None"
            case ast.Call(args=[ast.expr() as first, ast.expr() as second, *_]) if not _alike(first, second):
                text = f"{self._text(second)}{self._between(first, second)}{self._text(first)}"
                yield "arguments swapped", self._start(first), self._end(second), text
            case ast.Call(keywords=[ast.keyword(arg=str()), ast.keyword(arg=str()), *_] as keywords):
                first, second = keywords[0].value, keywords[1].value
                if not _alike(first, second):
                    text = f"{self._text(second)}{self._between(first, second)}{self._text(first)}"
                    yield "keywords swapped", self._start(first), self._end(second), text
            case ast.Break():
                yield "break", self._start(node), self._end(node), "continue"
            case ast.Continue():
                yield "continue", self._start(node), self._end(node), "break"
            case _:
                pass

    def _sql(self) -> Iterator[Mutant]:
        documentation = _documentation_lines(self._tree)
        for token in tokenize.generate_tokens(io.StringIO(self._source).readline):
            if token.type != tokenize.STRING or token.start[0] in documentation or not _SQL.search(token.string):
                continue
            line, column = token.start
            before = self._source.splitlines(keepends=True)[line - 1][:column]
            offset = self._starts[line - 1] + len(before.encode())
            for pattern, new in _SQL_CHANGES:
                for hit in pattern.finditer(token.string):
                    start = offset + len(token.string[: hit.start()].encode())
                    yield self._mutant("SQL", start, start + len(hit.group().encode()), new)

    def _function(self, line: int) -> str:
        inside = [(end - start, name) for start, end, name in self._functions if start <= line <= end]
        return min(inside)[1] if inside else "module"

    def _runs_in_function(self, line: int) -> bool:
        """False for what runs when the module is imported, the defaults of a function among it."""
        return any(start <= line <= end for start, end in self._bodies)

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        return self._bytes[self._start(node) : self._end(node)].decode()

    def _between(self, first: ast.expr, second: ast.expr) -> str:
        return self._bytes[self._end(first) : self._start(second)].decode()


def _running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run: no docstrings, annotations, decorators' arguments of dataclasses, nor what f-strings hold (their
    places are not known before Python 3.12)."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.JoinedStr | ast.arguments | ast.Import | ast.ImportFrom | ast.alias):
            if isinstance(child, ast.arguments):
                for default in (*child.defaults, *child.kw_defaults):
                    if default is not None:
                        yield from (default, *_running_nodes(default))
            continue
        if isinstance(child, ast.AnnAssign):
            if child.value is not None:
                yield from (child.value, *_running_nodes(child.value))
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defaults = [child.args] if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else []
            for part in (*defaults, *child.body):
                if isinstance(part, ast.arguments):
                    for default in (*part.defaults, *part.kw_defaults):
                        if default is not None:
                            yield from (default, *_running_nodes(default))
                else:
                    yield from (part, *_running_nodes(part))
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Assign) and any(
            isinstance(to, ast.Name) and to.id == "__all__" for to in child.targets
        ):
            continue
        yield child
        yield from _running_nodes(child)


def _functions(tree: ast.AST) -> list[tuple[int, int, str]]:
    """First line, last line and qualified name of every function and class."""
    found: list[tuple[int, int, str]] = []

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
                found.append((child.lineno, child.end_lineno or child.lineno, name))
            walk(child, name)

    walk(tree, "")
    return found


def _documentation_lines(tree: ast.AST) -> set[int]:
    """Lines on which strings begin that are statements of their own."""
    return {
        node.value.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def _replaced_operator(between: str, new: str) -> str:
    return re.sub(r"is not|not in|==|!=|<=|>=|<|>|\bis\b|\bin\b", new, between, count=1)


def _is_text(*nodes: ast.expr) -> bool:
    return any(
        isinstance(node, ast.JoinedStr | ast.List | ast.Tuple)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for node in nodes
    )


def _other_number(number: int) -> int:
    """One off where one counts; doubled where it is a size or a time, of which one more would be no fault."""
    return number + 1 if abs(number) <= 20 else number * 2


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _alike(first: ast.expr, second: ast.expr) -> bool:
    return ast.dump(first) == ast.dump(second) or isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
