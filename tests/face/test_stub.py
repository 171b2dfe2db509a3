"""The stub that type checkers read names what the lazy table finds, no more and no less."""

import ast
from pathlib import Path

import weft


def test_stub_and_table_agree():
    tree = ast.parse(Path(weft.__file__).with_suffix(".pyi").read_text())
    stub = {alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    found = {name: weft._HOMES[name] for name in weft._HOMES if hasattr(weft, name)}
    found |= {name: "weft" for name in weft._SUBMODULES if hasattr(weft, name)}
    assert stub == found
