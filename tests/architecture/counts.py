"""Counts of the package's structure, read off the syntax trees: `python -m tests.architecture.counts` prints them.

In:   the sources of `weft`.
Out:  per function its cyclomatic complexity and number of parameters; comparisons with names or kinds; statements without docstrings.
      test_structure.py bounds them.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted(ROOT.glob("weft/**/*.py"))
MAX_COMPLEXITY = 15
MAX_PARAMETERS = 6
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.comprehension,
    ast.And,
    ast.Or,
    ast.match_case,
)
_NAME_OR_KIND = re.compile(r"\.(?:primitive\.)?(?:name|kind) (?:==|!=|in) ")


@dataclass(frozen=True)
class FunctionCounts:
    """A function of the package by `module.qualified_name`, and its counts."""

    name: str
    complexity: int
    parameters: int


@functools.cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


def module_name(path: Path) -> str:
    """Return the module that a file holds."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of named parameters without `self` and `cls`.

    >>> parameters(ast.parse("def f(self, a, *b, c=1): pass").body[0])
    2
    """
    names = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len(names) - (bool(names) and names[0].arg in ("self", "cls"))


def functions(tree: ast.Module, module: str) -> list[FunctionCounts]:
    """Return the counts of all functions of a module; inner functions come before outer ones.

    The complexity is 1 plus the number of branches, with the branches of inner functions.

    >>> functions(ast.parse("def f(x):\\n  if x and x > 1: return [y for y in x]"), "m")
    [FunctionCounts(name='m.f', complexity=4, parameters=1)]
    """
    counts: list[FunctionCounts] = []

    def count_branches(node: ast.AST, prefix: str) -> int:
        branches = 0
        for child in ast.iter_child_nodes(node):
            is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            is_named = is_function or isinstance(child, ast.ClassDef)
            name = f"{prefix}.{child.name}" if is_named else prefix
            inside = count_branches(child, name)
            if is_function:
                counts.append(FunctionCounts(name, 1 + inside, parameters(child)))
            branches += inside + isinstance(child, BRANCHES)
        return branches

    count_branches(tree, module)
    return counts


def comparisons(path: Path, text: str) -> int:
    """Return how often a file compares an attribute `name` or `kind`; printing and compatibility may."""
    is_free = {"text", "compat"} & set(path.relative_to(ROOT).parts)
    return 0 if is_free else len(_NAME_OR_KIND.findall(text))


def statements(tree: ast.Module) -> int:
    """Return the number of statements without docstrings."""
    return sum(
        isinstance(node, ast.stmt)
        and not (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        for node in ast.walk(tree)
    )


@functools.cache
def all_functions() -> list[FunctionCounts]:
    """Return the counts of all functions of the package."""
    return [entry for path in SOURCES for entry in functions(parse(path), module_name(path))]


def all_comparisons() -> int:
    """Return the number of comparisons with names or kinds in the package."""
    return sum(comparisons(path, path.read_text()) for path in SOURCES)


def main() -> None:
    """Print the counts and the functions above the bounds."""
    entries = all_functions()
    for entry in sorted(entries, key=lambda entry: -entry.complexity):
        if entry.complexity > MAX_COMPLEXITY:
            print(f"complexity {entry.complexity:3}  {entry.name}")
    print(f"functions above complexity {MAX_COMPLEXITY}: ", end="")
    print(sum(entry.complexity > MAX_COMPLEXITY for entry in entries))
    print(f"functions above {MAX_PARAMETERS} parameters: ", end="")
    print(sum(entry.parameters > MAX_PARAMETERS for entry in entries))
    print(f"comparisons with names or kinds: {all_comparisons()}")
    print(f"statements: {sum(statements(parse(path)) for path in SOURCES)}")


if __name__ == "__main__":
    main()
