"""HTML for notebooks: the sharding of an array, meshes, shardings, folded programs and structures of trees.

In:  an object whose class is a `NotebookDisplay`.
Out: a fragment of HTML without scripts, in the colors of the notebook.

Next to read: `visualize`, which draws the pictures.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch
from typing import Any

from weft._engine.debug.device_tiles import tile
from weft._engine.debug.visualize import draw, to_html
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.mesh import AbstractMesh, Mesh
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.runtime.array import Array
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.trees.differences import LeafPlaceholder
from weft._engine.util.trees.keypath import keystr
from weft._engine.util.trees.node_types import node_type
from weft._engine.util.trees.treedef import PyTreeDef

#: levels of trees and programs that are open at first
_OPEN_LEVELS = 2
#: maximal number of lines of a program
_MOST_LINES = 2000


@singledispatch
def notebook_html(value: Any) -> str | None:
    """Return the HTML of an object, or None if its text is enough.

    >>> notebook_html(wnp.ones(3)), notebook_html(weft.tree.structure(1))
    (None, '<div class="weft"><div>PyTreeDef with 1 leaf</div><div><pre style="margin: 0">*</pre></div></div>')
    """
    return None


@notebook_html.register
def _(value: Array) -> str | None:
    if value.is_deleted() or value.sharding.num_devices == 1:
        return None
    facts = f"{value.aval.str_short()} on {quantity(value.sharding.num_devices, 'device')}"
    shown = _details("values", _pre(repr(value)), is_open=False)
    return _block(
        facts, _describe_sharding(value.sharding), _pictures(value.shape, value.sharding), shown
    )


@notebook_html.register
def _(value: Sharding) -> str:
    if _is_abstract(value):
        return _block(_describe_sharding(value), "without devices")
    counts = _tile_counts(value)
    note = f"{quantity(math.prod(counts), 'tile')} on {quantity(value.num_devices, 'device')}"
    return _block(_describe_sharding(value), note, _pictures(counts, value))


@notebook_html.register
def _(value: Mesh) -> str:
    if not value.axis_names or value.size == 0:
        return _block("Mesh without axes")
    spec = PartitionSpec(*value.axis_names)
    return _block("Mesh", _axes(value), _pictures(value.axis_sizes, NamedSharding(value, spec)))


@notebook_html.register
def _(value: AbstractMesh) -> str:
    return _block("AbstractMesh, without devices", _axes(value))


@notebook_html.register
def _(value: Jaxpr) -> str:
    lines = str(value).splitlines()
    more = len(lines) - _MOST_LINES
    facts = f"program of {quantity(len(value.eqns), 'equation')}"
    parts = [*_fold(lines[:_MOST_LINES]), *([_pre(f"… {more} more lines")] if more > 0 else [])]
    return _block(facts, "".join(parts))


@notebook_html.register
def _(value: PyTreeDef) -> str:
    leaves = [LeafPlaceholder() for _ in range(value.num_leaves)]
    try:
        tree = value.unflatten(leaves)
    except Exception:  # a class of the user that does not accept placeholders
        return _block(html.escape(str(value)))
    return _block(f"PyTreeDef with {quantity(value.num_leaves, 'leaf')}", _tree("", tree, 0))


# ---- shardings


def _describe_sharding(sharding: Sharding) -> str:
    if isinstance(sharding, NamedSharding):
        axes = ", ".join(f"{name!r}: {size}" for name, size in sharding.mesh.shape.items())
        return html.escape(f"{sharding.spec} on a mesh of {axes}")
    return html.escape(repr(sharding))


def _is_abstract(sharding: Sharding) -> bool:
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)


def _tile_counts(sharding: Sharding) -> tuple[int, ...]:
    """Return the shape of the smallest array that the sharding splits into all of its tiles."""
    if isinstance(sharding, NamedSharding):
        sizes = sharding.mesh.shape
        entries = [e if isinstance(e, tuple) else (e,) for e in sharding.spec]
        return tuple(math.prod(sizes.get(name, 1) for name in entry) for entry in entries)
    return tuple(getattr(sharding, "shape", ()))


def _pictures(shape: Sequence[int], sharding: Sharding) -> str:
    return "".join(to_html(picture) for picture in draw(tile(shape, sharding)))


def _axes(mesh: Mesh | AbstractMesh) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(str(name))}</td><td>{size}</td><td>{kind.name}</td></tr>"
        for name, size, kind in zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    )
    return f"<table><tr><th>axis</th><th>size</th><th>type</th></tr>{rows}</table>"


# ---- text and trees


def _block(*parts: str) -> str:
    return f'<div class="weft">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'


def _pre(text: str) -> str:
    return f'<pre style="margin: 0">{html.escape(text)}</pre>'


def _details(title: str, body: str, is_open: bool) -> str:
    style = "font-family: monospace; white-space: pre"
    return f'<details{" open" * is_open}><summary style="{style}">{html.escape(title)}</summary>{body}</details>'


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _fold(lines: Sequence[str], level: int = 0) -> Iterator[str]:
    """Yield HTML of a text; a line and the deeper indented lines after it are folded together.

    >>> print("".join(_fold(["a", "  b", "c"])).replace("><", ">|<").count("<details"))
    1
    """
    start = 0
    while start < len(lines):
        end = start + 1
        while end < len(lines) and _indent(lines[end]) > _indent(lines[start]):
            end += 1
        if end == start + 1:
            yield _pre(lines[start])
        else:
            body = "".join(_fold(lines[start + 1 : end], level + 1))
            yield _details(lines[start], body, level < _OPEN_LEVELS)
        start = end


def _tree(key: str, tree: Any, level: int) -> str:
    node = node_type(type(tree))
    prefix = f"{key}: " if key else ""
    if type(tree) is LeafPlaceholder:
        return _pre(f"{prefix}*")
    if node is None or tree is None:
        return _pre(f"{prefix}{tree!r}")
    keys, children, _ = node.children_with_keys(tree)
    title = f"{prefix}{type(tree).__name__} of {quantity(len(children), 'entry')}"
    parts: Iterable[str] = (
        _tree(keystr((key,)), child, level + 1) for key, child in zip(keys, children, strict=True)
    )
    body = f'<div style="margin-left: 1.5em">{"".join(parts)}</div>'
    return _details(title, body, level < _OPEN_LEVELS)
