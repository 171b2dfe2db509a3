"""Signatures of public functions as the text of stubs.

In:   a public function at runtime: names, kinds and defaults of its parameters, and the annotations of its source.
Out:  `def name(...) -> Array: ...` with a type for every parameter. `signature_types` has the types that sources leave open.
      `weft/tools/declarations` has the declarations that one signature cannot express: overloads, and generic classes.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from weft.tools.stubs.module_names import defined_names, source_names
from weft.tools.stubs.signature_types import PARAMETERS, RESULTS

_DECLARATIONS = Path(__file__).parent / "declarations"
#: types in signatures: their modules
_SOURCES = {
    "Any": "typing",
    "Array": "weft._engine.runtime.array",
    "ArrayLike": "weft.typing",
    "Callable": "collections.abc",
    "Collection": "collections.abc",
    "DTypeLike": "weft.typing",
    "Device": "weft._engine.backends.base",
    "GatherScatterMode": "weft._engine.ops.indexing",
    "Iterable": "collections.abc",
    "Iterator": "collections.abc",
    "Literal": "typing",
    "Mapping": "collections.abc",
    "NamedSharding": "weft._engine.ir.shardings",
    "PartitionSpec": "weft._engine.ir.specs",
    "PrecisionLike": "weft._engine.ops.contraction",
    "Sequence": "collections.abc",
    "Sharding": "weft._engine.ir.shardings",
    "SupportsIndex": "typing",
}
#: type arguments of generic types that sources leave out
_ARGUMENTS = {
    "Callable": "..., Any",
    "Collection": "Any",
    "Iterable": "Any",
    "Mapping": "Any, Any",
    "Sequence": "Any",
    "dict": "Any, Any",
    "list": "Any",
    "tuple": "Any, ...",
    "type": "Any",
}


class StubText:
    """The text of one stub: imports, and definitions that use them.

    `names` are the public names of the module: builtins of the same names are written as `_builtins.name`. `renamed` has the names of
    types that the module calls otherwise.
    """

    def __init__(
        self, module: str, names: Collection[str], renamed: Mapping[str, str] | None = None
    ):
        self.module, self.names, self.renamed = module, names, renamed or {}
        self.imports: dict[str, set[str]] = {}
        self.definitions: list[str] = []

    def declare(self, name: str, fun: Callable[..., Any], default: str) -> None:
        """Add the definition of a function. Parameters without a type have the type `default`; so has a result that is not `Any`, if
        it has no other type."""
        self.definitions.append(self.signature(name, fun, default))

    def signature(
        self, name: str, fun: Callable[..., Any], default: str, method: bool = False
    ) -> str:
        """Return the definition of a function, or of the method that passes the array as its first argument."""
        source = str(getattr(inspect.unwrap(fun), "__module__", ""))
        signature = inspect.signature(fun)
        parameters = list(signature.parameters.values())
        if method:
            parameters = [
                p.replace(kind=_KEYWORD) if p.kind is _POSITIONAL else p for p in parameters[1:]
            ]
        written = _with_separators(
            [self._parameter(name, p, source, default) for p in parameters],
            [p.kind for p in parameters],
        )
        stated = _text_of(signature.return_annotation)
        known = RESULTS.get(f"{self.module.removeprefix('weft.')}.{name}")
        result = known or stated or default
        if known is None and result in ("Any", "ArrayLike"):
            result = "Array" if default == "ArrayLike" else "Any"
        head = f"def {name}({', '.join(['self'] * method + written)})"
        body = " ..." if method else _docstring(fun)
        return f"{head} -> {self.type_of(result, source)}:{body}\n"

    def _parameter(
        self, function: str, parameter: inspect.Parameter, source: str, default: str
    ) -> str:
        name, value = parameter.name, parameter.default
        stated = _text_of(parameter.annotation)
        if not stated or (stated == "Any" and type(value) is not str):
            known = PARAMETERS.get(f"{function}.{name}") or PARAMETERS.get(name)
            if known is None and not stated and type(value) in (bool, str):
                known = type(value).__name__
            stated = known or (default if not stated or default == "ArrayLike" else stated)
        if value is None and "None" not in stated and stated != "Any":
            stated += " | None"
        prefix = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        text = f"{prefix.get(parameter.kind, '')}{name}: {self.type_of(stated, source)}"
        if value is parameter.empty:
            return text
        is_literal = value is None or type(value) in (bool, int, str)
        return f"{text} = {value!r}" if is_literal else f"{text} = ..."

    def type_of(self, text: str, source: str) -> str:
        """Return the type with its names imported; names that the module `source` does not define become `Any`."""
        return ast.unparse(_Names(self, source).visit(ast.parse(text, mode="eval").body))

    def use(self, name: str, module: str) -> str:
        """Import a name from a module unless it is a public name, and return it."""
        if name not in self.names:
            self.imports.setdefault(module, set()).add(name)
        return name


def _with_separators(written: list[str], kinds: list[Any]) -> list[str]:
    """Return the parameters with `/` after positional ones and `*` before keywords."""
    result = list(written)
    has_rest = inspect.Parameter.VAR_POSITIONAL in kinds
    if inspect.Parameter.KEYWORD_ONLY in kinds and not has_rest:
        result.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    if _POSITIONAL in kinds:
        result.insert(kinds.count(_POSITIONAL), "/")
    return result


def _docstring(fun: Callable[..., Any]) -> str:
    """Return the body of a declaration: the first paragraph of the docstring, which editors show."""
    doc = (inspect.getdoc(fun) or "").partition("\n\n")[0].replace("\n", " ")
    return f'\n    r"""{doc}"""' if doc and '"""' not in doc else " ..."


_POSITIONAL, _KEYWORD = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


class _Names(ast.NodeTransformer):
    """Imports the names of a type into a stub."""

    def __init__(self, stub: StubText, source: str):
        self.stub, self.source = stub, source

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        quoted = isinstance(node.value, str)
        return self.visit(ast.parse(str(node.value), mode="eval").body) if quoted else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if ast.unparse(node).startswith("np."):
            self.stub.imports.setdefault("", set()).add("numpy as np")
            return node
        return self.visit(ast.Name(node.attr))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        head = node.value
        if isinstance(head, ast.Name) and head.id == "Literal":
            self.stub.use("Literal", "typing")
            return node
        name = head.id if isinstance(head, ast.Name) else ""
        node.value = ast.Name(self._import(name)) if name else self.visit(head)
        node.slice = self.visit(node.slice)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = self._import(node.id)
        if node.id in _ARGUMENTS and name != "Any":
            self.stub.use("Any", "typing")
            name = f"{name}[{_ARGUMENTS[node.id]}]"
        return ast.parse(name, mode="eval").body

    def _import(self, name: str) -> str:
        if name == "DType":
            self.stub.imports.setdefault("", set()).add("numpy as np")
            return "np.dtype[Any]" if self.stub.use("Any", "typing") else ""
        if name in self.stub.renamed:
            return self.stub.renamed[name]
        if name in _SOURCES:
            return self.stub.use(name, _SOURCES[name])
        if hasattr(builtins, name):
            if name not in self.stub.names:
                return name
            self.stub.imports.setdefault("", set()).add("builtins as _builtins")
            return f"_builtins.{name}"
        origin = defining_module(self.source, name)
        if origin is None:
            return self.stub.use("Any", "typing")
        return self.stub.use(name, origin)


def _text_of(annotation: Any) -> str:
    """Return an annotation as text, "" for none."""
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def defining_module(module: str, name: str) -> str | None:
    """Return the module that defines a name which `module` defines or imports under the same name, or None."""
    for _ in range(8):
        origin = source_names(module).get(name)
        if origin is None or origin[1] != name:
            return None
        if origin[0] == module or not origin[0].startswith("weft."):
            return origin[0]
        module = origin[0]
    return None


class Declarations:
    """The hand-written declarations for a module, from `weft/tools/declarations`."""

    def __init__(self, module: str):
        path = _DECLARATIONS / f"{module.removeprefix('weft.').replace('.', '_')}.pyi"
        text = path.read_text() if path.exists() else '""'
        lines, statements = text.splitlines(), ast.parse(text).body[1:]
        self.imports: dict[str, set[str]] = {}
        self.statements: list[str] = []
        self.names: set[str] = set()
        for node in statements:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
                names = [f"{a.name} as {a.asname}" if a.asname else a.name for a in node.names]
                self.imports.setdefault(module, set()).update(names)
                continue
            decorators = (
                node.decorator_list if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
            )
            first = min([node.lineno, *[decorator.lineno for decorator in decorators]])
            self.statements.append("\n".join([*lines[first - 1 : node.end_lineno], ""]))
            self.names.update(defined_names(node))
