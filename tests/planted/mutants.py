"""Random mutants of the compiler, the partitioner and the code generator.

In:   the sources of a tree, a seed.
Out:  `draw(root, count, seed)`: mutants, each one small change at one node of a syntax tree.
Laws: a mutant is valid Python and differs from its original in syntax; the same seed on the same
      sources gives the same mutants. Error messages and annotations are left alone.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("weft/_engine/compiler", "weft/_engine/partition", "weft/_engine/codegen")
#: operators whose operands do not commute
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift)
ORDERINGS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


@dataclass(frozen=True)
class Mutant:
    """One changed span of a file, `start` and `end` in bytes."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.kind}"

    @property
    def note(self) -> str:
        cut = lambda text: " ".join(text.split())[:60]
        return f"{cut(self.old)} => {cut(self.new)}"

    def apply(self, text: str) -> str:
        """Return the file's text with the change; raise ValueError if the file's text has changed."""
        data = text.encode()
        if data[self.start : self.end].decode() != self.old:
            raise ValueError(f"mutant {self.name!r}: {self.path} has changed")
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


# ---- changes: each takes a copy of a node and returns the changed node, or None


def swap_operands(node: ast.AST) -> ast.AST | None:
    """Exchange the operands of an operator that does not commute."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ORDERED):
        return None
    if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
        return None
    node.left, node.right = node.right, node.left
    return node


def change_bound(node: ast.AST) -> ast.AST | None:
    """Include or exclude the end of a comparison, or move a bound of a range by one."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in ORDERINGS:
        node.ops = [ORDERINGS[type(node.ops[0])]()]
        return node
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range" and node.args:
        at = min(1, len(node.args) - 1)
        node.args[at] = ast.BinOp(node.args[at], ast.Sub(), ast.Constant(1))
        return node
    return None


def change_constant(node: ast.AST) -> ast.AST | None:
    """Add one to an integer."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
        for side in ("right", "left"):
            value = getattr(node, side)
            if isinstance(value, ast.Constant) and type(value.value) is int:
                setattr(node, side, ast.Constant(value.value + 1))
                return node
    return None


def swap_axes(node: ast.AST) -> ast.AST | None:
    """Replace one of the first two entries by the other, or one end by the other."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return None
    index = node.slice
    if isinstance(index, ast.Constant) and index.value in (0, 1) and type(index.value) is int:
        node.slice = ast.Constant(1 - index.value)
        return node
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub):
        node.slice = ast.Constant(0)
        return node
    return None


def swap_arguments(node: ast.AST) -> ast.AST | None:
    """Exchange the last two of the positional arguments of a call."""
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return None
    if any(isinstance(a, ast.Starred | ast.JoinedStr) for a in node.args):
        return None
    if getattr(node.func, "id", "") in ("isinstance", "getattr", "issubclass", "hasattr", "zip"):
        return None
    node.args[-2:] = node.args[:-3:-1]
    return node


def drop_statement(node: ast.AST) -> ast.AST | None:
    """Remove a call, an update or an assignment to an entry or attribute."""
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    is_store = isinstance(node, ast.Assign) and not any(
        isinstance(t, ast.Name | ast.Tuple) for t in node.targets
    )
    return ast.Pass() if is_call or is_store or isinstance(node, ast.AugAssign) else None


def negate_condition(node: ast.AST) -> ast.AST | None:
    """Negate the condition of a conditional expression; statements keep the form of their body."""
    if not isinstance(node, ast.IfExp):
        return None
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


#: the nodes that some change applies to
CHANGEABLE = (
    ast.BinOp,
    ast.Compare,
    ast.Call,
    ast.Subscript,
    ast.Expr,
    ast.Assign,
    ast.AugAssign,
    ast.IfExp,
)
CHANGES: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    "swapped operands": swap_operands,
    "changed bound": change_bound,
    "changed constant": change_constant,
    "swapped axes": swap_axes,
    "swapped arguments": swap_arguments,
    "dropped statement": drop_statement,
    "negated condition": negate_condition,
}


# ---- drawing


def sites(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes inside functions, without error messages, annotations and f-strings."""
    inside = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    seen: set[int] = set()
    for function in inside:
        stack: list[ast.AST] = list(function.body)
        while stack:
            node = stack.pop()
            if id(node) in seen or isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
                continue
            seen.add(id(node))
            if hasattr(node, "lineno"):
                yield node
            skipped = getattr(node, "annotation", None)
            stack += [child for child in ast.iter_child_nodes(node) if child is not skipped]


class MutantSource:
    """A file from which mutants are drawn."""

    def __init__(self, root: Path, path: str) -> None:
        self.path = path
        text = (root / path).read_text()
        self.data = text.encode()
        self.tree = ast.parse(text)
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line.encode()))

    def mutants(self) -> list[Mutant]:
        """Return every mutant of the file, in the order of its nodes."""
        result = []
        for node in sites(self.tree):
            if isinstance(node, ast.If | ast.While):
                old = self._text(node.test)
                result.append(self._mutant(node.test, "negated condition", f"(not ({old}))"))
                continue
            for kind, change in CHANGES.items():
                new = _changed(node, change)
                if new is not None:
                    result.append(self._mutant(node, kind, new))
        return sorted(result, key=lambda m: (m.start, m.end, m.kind))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        lines = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        columns = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        start, end = [self.starts[n - 1] + c for n, c in zip(lines, columns)]
        return start, end

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.data[start:end].decode()

    def _mutant(self, node: ast.AST, kind: str, new: str) -> Mutant:
        line = node.lineno  # type: ignore[attr-defined]
        return Mutant(self.path, line, kind, *self._span(node), self._text(node), new)


def _changed(node: ast.AST, change: Callable[[ast.AST], ast.AST | None]) -> str | None:
    """Return the text of a changed node; None if the change does not apply or changes nothing."""
    if not isinstance(node, CHANGEABLE):
        return None
    before = ast.dump(node)
    changed = change(copy.deepcopy(node))
    if changed is None or ast.dump(changed) == before:
        return None
    new = ast.unparse(ast.fix_missing_locations(changed))
    return new if isinstance(node, ast.stmt) else f"({new})"


def files(root: Path) -> list[str]:
    """Return the files that mutants are drawn from: all but the checks of compiled programs."""
    paths = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
    names = [str(path.relative_to(root)) for path in paths]
    return sorted(name for name in names if not name.endswith("_check.py"))


def draw(root: Path, count: int, seed: int) -> list[Mutant]:
    """Return `count` different mutants: kinds are equally likely, files as likely as they are long."""
    r = random.Random(seed)
    by_kind: dict[str, list[Mutant]] = {kind: [] for kind in CHANGES}
    for path in files(root):
        for mutant in MutantSource(root, path).mutants():
            by_kind[mutant.kind].append(mutant)
    chosen: dict[Mutant, None] = {}
    kinds = sorted(by_kind)
    while len(chosen) < count:
        mutant = r.choice(by_kind[kinds[len(chosen) % len(kinds)]])
        if is_valid(root, mutant):
            chosen[mutant] = None
    return list(chosen)


def is_valid(root: Path, mutant: Mutant) -> bool:
    """Return whether the mutated file is valid and differs in syntax."""
    text = (root / mutant.path).read_text()
    try:
        return ast.dump(ast.parse(mutant.apply(text))) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False
