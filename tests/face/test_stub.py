"""The stub that type checkers read names what the lazy table finds, no more and no less."""

import ast
from pathlib import Path

import weft
import weft.numpy as wnp


def test_stub_and_table_agree():
    tree = ast.parse(Path(weft.__file__).with_suffix(".pyi").read_text())
    stub = {alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    found = {name: weft._HOMES[name] for name in weft._HOMES if hasattr(weft, name)}
    found |= {name: "weft" for name in weft._SUBMODULES if hasattr(weft, name)}
    assert stub == found


def test_stub_and_table_of_numpy_agree():
    tree = ast.parse(Path(wnp.__file__).with_suffix(".pyi").read_text())
    stub = {alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    found = {name: f"weft.numpy.{home}" for name, home in wnp._HOMES.items()}
    assert {name: home for name, home in stub.items() if name in found} == found
    targets = [t for node in tree.body for t in (getattr(node, "targets", None) or [getattr(node, "target", None)])]
    said = {target.id for target in targets if isinstance(target, ast.Name)}
    offered = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names if alias.asname}
    assert offered | said == set(wnp.__all__)
    assert all(hasattr(wnp, name) for name in wnp.__all__)
