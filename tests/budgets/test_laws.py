"""Laws that the sources keep, found from their syntax trees: a pass of the compiler dispatches on what a primitive is, not on its name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft

PACKAGE = Path(weft.__file__).parent
PASSES = sorted((PACKAGE / "compiler").rglob("*.py"))


def is_name_of_primitive(node: ast.AST) -> bool:
    """Whether an expression is `....primitive.name` or `primitive.name`."""
    if not (isinstance(node, ast.Attribute) and node.attr == "name"):
        return False
    of = node.value
    return (isinstance(of, ast.Attribute) and of.attr == "primitive") or (isinstance(of, ast.Name) and of.id in ("primitive", "prim"))


def decisions(function: ast.AST) -> Iterator[ast.AST]:
    """The expressions on which something depends: what is compared, matched, looked up in a table, or a name of what is fetched."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare):
            yield from (node.left, *node.comparators)
        elif isinstance(node, ast.Subscript):
            yield node.slice
        elif isinstance(node, ast.Match):
            yield node.subject
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("get", "startswith", "endswith"):
                yield from node.args[:1]
            elif called == "getattr":
                yield from node.args[1:2]


def breaches(tree: ast.AST) -> list[str]:
    """The places where something depends on the name of a primitive, of a class or of a method, or on which primitive one is."""
    found = []
    for function in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Module | ast.Lambda)]:
        assigned = [n for n in ast.walk(function) if isinstance(n, ast.Assign) and any(map(is_name_of_primitive, ast.walk(n.value)))]
        names = {n.id for one in assigned for n in ast.walk(one) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in decisions(function):
            alone = isinstance(node, ast.Name) and (node.id.endswith("_p") or (node.id in names and not isinstance(function, ast.Module)))
            named = is_name_of_primitive(node) or (isinstance(node, ast.Attribute) and node.attr in ("__name__", "__qualname__"))
            made = isinstance(node, ast.BinOp | ast.JoinedStr)       # getattr(self, "_" + how)
            if alone or named or (made and any(isinstance(x, ast.Constant) and str(x.value).endswith("_") for x in ast.walk(node))):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return sorted(set(found))


@pytest.mark.parametrize("text, count", [
    ("def f(eqn):\n    return eqn.primitive.name == 'add'", 1),
    ("def f(eqn):\n    name = eqn.primitive.name\n    return name in ('add', 'sub')", 1),
    ("def f(eqn):\n    name, x = eqn.primitive.name, 1\n    if name == 'add': return x", 1),
    ("def f(eqn):\n    return RULES.get(eqn.primitive.name)", 1),
    ("def f(eqn):\n    return RULES[eqn.primitive.name]", 1),
    ("def f(eqn):\n    return eqn.primitive is add_p", 1),
    ("def f(spec):\n    return KINDS[type(spec).__name__]", 1),
    ("def f(self, how):\n    return getattr(self, '_' + how)()", 1),
    ("def f(self, how):\n    return getattr(self, f'_{how}')()", 1),
    ("def f(eqn):\n    match eqn.primitive.name:\n        case 'add': return 1", 1),
    ("def f(eqn, before):\n    return before.primitive is eqn.primitive and eqn.primitive.kind == 'layout'", 0),
    ("def f(eqn):\n    return Kernel(name=eqn.primitive.name), f'fused_{eqn.primitive.name}'", 0),
])
def test_what_is_a_breach(text, count):
    assert len(breaches(ast.parse(text))) == count


def test_passes_of_the_compiler_ask_what_a_primitive_is():
    found = {str(path.relative_to(PACKAGE)): breaches(ast.parse(path.read_text())) for path in PASSES}
    assert len(found) > 40 and {path: places for path, places in found.items() if places} == {}
