"""Upward hooks stand in `weft._engine.hooks` alone."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft._engine import hooks
from weft._engine.hooks import Hook

PACKAGE = Path(weft.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
HOOKS = {name: value for name, value in vars(hooks).items() if type(value) is Hook}
MUTATIONS = {"add", "append", "extend", "insert", "setdefault", "update"}


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Return the full names of the names that a module imports from weft."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft"):
            names.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
        elif isinstance(node, ast.Import):
            names.update({a.asname or a.name.split(".")[0]: a.name for a in node.names})
    return {name: value for name, value in names.items() if value.startswith("weft")}


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield statement
        for block in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, block, []))


def changed_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the attributes and items that a statement sets, and the containers that it changes."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        yield statement.target
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.attr in MUTATIONS:
            yield function


def upward_settings(source: str, package: str) -> list[str]:
    """Return the statements of a module of `package` that change an object of another package when it is imported."""
    tree = ast.parse(source)
    names, settings = imported_names(tree), []
    for statement in statements(tree.body):
        for changed in changed_expressions(statement):
            root = changed
            while isinstance(root, (ast.Attribute, ast.Subscript)):
                root = root.value
            owner = names.get(root.id, "") if isinstance(root, ast.Name) else ""
            is_elsewhere = owner and not owner.startswith((f"{package}.", "weft._engine.hooks"))
            if is_elsewhere and changed is not root:
                settings.append(ast.unparse(statement))
    return settings


@pytest.mark.parametrize(
    "source",
    [
        "from weft._engine.ir import mesh\nmesh.in_program = lambda: True",
        "from weft._engine.core.trace import Zero\nZero.instantiate = print",
        "import weft._engine.programs\nweft._engine.programs.listeners.append(print)",
        "from weft._engine.core.trace import table\ntry:\n    table[int] = print\nfinally:\n    pass",
    ],
)
def test_the_search_finds_a_hook(source):
    assert len(upward_settings(source, "weft._engine.api")) == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_sets_a_hook_of_another(path):
    package = ".".join(("weft", *path.relative_to(PACKAGE).parts[:-1]))
    assert not upward_settings(path.read_text(), package)


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_names_a_function_above(name):
    hook = HOOKS[name]
    assert callable(getattr(importlib.import_module(hook.module), hook.name))


def test_a_default_serves_until_the_module_is_imported():
    hook = Hook("tests.no_such_module", "answer", lambda: 42)
    assert hook() == 42
    with pytest.raises(ImportError):
        Hook("tests.no_such_module", "answer")()
