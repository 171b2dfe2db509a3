"""Names that a module defines or imports, read from its file without importing it."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

#: name -> (module that defines it or from which it is imported, name there)
Origins = dict[str, tuple[str, str]]


@functools.cache
def source_names(module: str) -> Origins:
    """Return the origins of the names in the source of a module.

    >>> source_names("weft.typing")["Protocol"], source_names("weft.typing")["ArrayLike"]
    (('typing', 'Protocol'), ('weft.typing', 'ArrayLike'))
    """
    return _names(module, _file(module))


@functools.cache
def stub_names(module: str) -> Origins:
    """Return the origins of the names in the stub of a module, or in its source if it has no stub: what type checkers read.

    >>> "sin" in stub_names("weft.numpy"), "sinus" in stub_names("weft.numpy")
    (True, False)
    """
    path = _file(module)
    stub = None if path is None else path.with_suffix(".pyi")
    return _names(module, stub if stub is not None and stub.exists() else path)


def _file(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # of a parent package
        return None
    is_python = spec is not None and str(spec.origin).endswith(".py")
    return Path(str(spec.origin)) if spec is not None and is_python else None


def _names(module: str, path: Path | None) -> Origins:
    if path is None:
        return {}
    names: Origins = {}
    for node in _statements(ast.parse(path.read_text()).body):
        if isinstance(node, ast.ImportFrom) and not node.level:
            source = str(node.module)
            entries = {alias.asname or alias.name: (source, alias.name) for alias in node.names}
            names |= source_names(source) if "*" in entries else entries
        else:
            names |= {name: (module, name) for name in defined_names(node)}
    return names


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those for type checkers only."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try)):
            yield from _statements([*node.body, *node.orelse])
        else:
            yield node


def defined_names(node: ast.stmt) -> list[str]:
    """Return the names that a definition or an assignment defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [leaf.id for t in targets for leaf in ast.walk(t) if isinstance(leaf, ast.Name)]
