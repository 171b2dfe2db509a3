"""Laws of the passes, read off the syntax trees: operations are known by their kind, facts and slots, never by name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PASS_PACKAGES = ("weft/_engine/partition", "weft/_engine/compiler")


def by_name(tree: ast.Module) -> Iterator[int]:
    """Yield lines where a program chooses by the name of an operation.

    That is: the name of a primitive, or a variable that holds one, is compared or looked up in a table; a primitive is compared
    with one that is spelled out (`... is add_p`); a class is known by its `__name__`; an attribute is found by a composed name.
    """
    for function in ast.walk(tree):
        if isinstance(function, (ast.Module, ast.FunctionDef, ast.ClassDef)):
            nodes = list(_inside(function))
            names = {
                target
                for node in nodes
                if isinstance(node, ast.Assign)
                for target in _holding_names(node)
            }
            is_name = lambda node, names=names: (
                _is_name_of_primitive(node) or (isinstance(node, ast.Name) and node.id in names)
            )
            for node in nodes:
                if _chooses(node, is_name):
                    yield node.lineno


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function or module that are not in a function or a text in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(
            child, (ast.FunctionDef, ast.ClassDef, ast.JoinedStr)
        ):  # a text chooses nothing
            yield child
            yield from _inside(child)


def _is_name_of_primitive(node: ast.AST) -> bool:
    """Return whether an expression reads `name` of something that is called a primitive."""
    if not isinstance(node, ast.Attribute) or node.attr != "name":
        return False
    owner = node.value
    return "primitive" in (
        owner.attr
        if isinstance(owner, ast.Attribute)
        else owner.id
        if isinstance(owner, ast.Name)
        else ""
    )


def _holding_names(node: ast.Assign) -> Iterator[str]:
    """Yield the variables to which an assignment gives the name of a primitive."""
    for target in node.targets:
        both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        for to, value in zip(target.elts, node.value.elts) if both else [(target, node.value)]:
            if isinstance(to, ast.Name) and _is_name_of_primitive(value):
                yield to.id


def _is_primitive(node: ast.AST) -> bool:
    """Return whether an expression spells out a primitive, or several: `add_p`, `ops.add_p`, `(add_p, mul_p)`."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(map(_is_primitive, node.elts))
    name = (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )
    return name.endswith("_p") and len(name) > 2


def _chooses(node: ast.AST, is_name) -> bool:
    if isinstance(node, ast.Compare):
        return any(is_name(side) or _is_primitive(side) for side in (node.left, *node.comparators))
    if isinstance(node, ast.Subscript):
        return is_name(node.slice)
    if isinstance(node, ast.Match):
        return is_name(node.subject)
    if isinstance(node, ast.Attribute) and node.attr == "__name__":
        return (
            isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "type"
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        return len(node.args) > 1 and isinstance(node.args[1], (ast.BinOp, ast.JoinedStr))
    lookup = (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "startswith", "endswith")
    )
    return lookup and (any(map(is_name, node.args)) or is_name(node.func.value))


def test_choices_by_name_are_found():
    source = """
if eqn.primitive.name == "add": pass
if p.eqn.primitive.name in ("add", "mul"): pass
if primitive is add_p: pass
if eqn.primitive in (ops.add_p, ops.mul_p): pass
name, ins = eqn.primitive.name, eqn.invars
rule = RULES.get(name)
rule = RULES[name]
how = type(spec).__name__
getattr(self, "_" + how)
getattr(self, f"_{how}")
match eqn.primitive.name:
    case "add": pass
if eqn.primitive.name.startswith("reduce_"): pass"""
    assert sorted(by_name(ast.parse(source))) == [2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14]
    allowed = """
if eqn.primitive.kind == "elementwise" and before.primitive is eqn.primitive: pass
label = f"{eqn.primitive.name} {getattr(eqn, 'source', None)} {type(error).__name__}"
kernel = Kernel(name=eqn.primitive.name)
def f():
    name = kernel.name
    return TABLE.get(name), name == "x\""""
    assert not list(by_name(ast.parse(allowed)))


def test_passes_know_no_operation_by_name():
    """To distinguish operations in a pass, give them an attribute, a class or a rule."""
    violations = {}
    for path in (
        path for package in PASS_PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
    ):
        lines = sorted(set(by_name(ast.parse(path.read_text()))))
        if lines:
            violations[str(path.relative_to(ROOT))] = lines
    assert not violations


def phi_nodes(tree: ast.Module) -> list[int]:
    """Return lines whose texts have a phi node of LLVM."""
    texts = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [
        node.lineno
        for node in texts
        if re.search(r"(^|= )phi |\bphi (i\d|float|double|ptr|<)", node.value)
    ]


def test_only_loop_and_branch_builders_write_phi_nodes():
    """Use `loop`, `loop_over_range`, `loop_while`, `branch` and `conditional`, or a fixed helper in a `.ll` file."""
    assert sorted(
        phi_nodes(ast.parse('"""Of phi nodes."""\nf"phi {t}"\nx = f"%a = phi {t}"\n"%a=phi i1"'))
    ) == [2, 3, 4]
    writers = {
        path.name
        for path in sorted((ROOT / "weft/_engine/codegen").rglob("*.py"))
        if phi_nodes(ast.parse(path.read_text()))
    }
    assert writers == {"scoped_writer.py", "writer.py"}


def test_versions_of_jax_are_compared_in_one_module():
    """Add a field to `JaxBehavior` where versions of JAX differ."""
    engine = ROOT / "weft/_engine"
    modules = {
        str(path.relative_to(engine))
        for path in engine.rglob("*.py")
        if re.search(r"util\.config import [^)\n]*\bapi_version\b", path.read_text())
    }
    assert modules == {"util/jax_versions.py"}
