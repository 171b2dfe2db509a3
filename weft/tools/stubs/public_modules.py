"""Stubs of weft's public modules.

In:   the tables of public names: of `util.lazy`, of `weft` and of `weft.numpy`.
Out:  a `.pyi` next to each module with the same names. It declares functions of arrays with the types of users' programs, and imports
      other names. tests/public/test_stub.py fails when one is outdated.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from types import GenericAlias
from typing import Any

import numpy as np

import weft
from weft import numpy as wnp
from weft._engine.core import array_methods
from weft._engine.numpy import methods
from weft._engine.numpy.ufunc_type import ufunc
from weft._engine.util import dtypes, lazy
from weft.tools.stubs.signatures import Declarations, StubText

_HEAD = '"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""\n# ruff: noqa: {rules}\n# fmt: off\n\n'
#: for modules of the engine that have other names, too
_OTHERS = "\nfrom typing import Any\n\ndef __getattr__(name: str) -> Any: ...  # pyright: ignore[reportIncompleteStub]  # on purpose\n"
_WIDTH = 100
#: the type of the parameters and results of a module's functions, unless they have another one; functions of other modules are imported
_DEFAULT_TYPES = {
    "weft.numpy": "ArrayLike",
    "weft.numpy.linalg": "ArrayLike",
    "weft.numpy.fft": "ArrayLike",
    "weft.lax": "Any",
    "weft.lax.linalg": "Any",
    "weft.random": "ArrayLike",
    "weft.nn": "ArrayLike",
    "weft.ops": "ArrayLike",
    "weft.scipy.linalg": "ArrayLike",
    "weft.scipy.signal": "ArrayLike",
    "weft.scipy.special": "ArrayLike",
}
#: the base class of arrays is below the other types of signatures
_TYPES_IN_METHODS = {
    "Array": "ArrayMethods",
    "ArrayLike": "_Operand",
    "DTypeLike": "_DType",
    **dict.fromkeys(
        "Device GatherScatterMode NamedSharding PartitionSpec PrecisionLike Sharding".split(), "Any"
    ),
}

Table = dict[str, tuple[str, str]]


def stubs() -> dict[Path, str]:
    """Return the text of every stub, by path."""
    root = Path(weft.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if "import attach\n" in path.read_text():
            importlib.import_module(
                ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(
                    ".__init__"
                )
            )
    tables = {
        "weft": _of_weft(),
        "weft.numpy": _of_numpy(),
        **{name: table for name, table in lazy.tables.items() if name in sys.modules},
    }
    for name in _DEFAULT_TYPES.keys() - tables.keys():  # whose functions stand in the module itself
        public = importlib.import_module(name).__all__
        tables[name] = {function: (name, function) for function in public}
    declared = _declared(tables)
    inside = {name for name in tables if name.startswith("weft._engine.")}
    texts = {
        Path(str(sys.modules[name].__file__)).with_suffix(".pyi"): _text(
            name, table, {} if name in inside else declared
        )
        + _OTHERS * (name in lazy.open_tables and name in inside)
        for name, table in tables.items()
    }
    methods = Path(str(array_methods.__file__)).with_suffix(".pyi")
    return {**texts, methods: _of_array_methods()}


def _declared(tables: dict[str, Table]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the public module and name that declare each function of the engine, by its module and name there. The other modules with
    the function import it from there."""
    homes: dict[tuple[str, str], tuple[str, str]] = {}
    for module in ("weft", *_DEFAULT_TYPES):
        names = Declarations(module).names
        for name, origin in tables[module].items():
            is_declared = name in names or (module in _DEFAULT_TYPES and _is_function(module, name))
            if origin[1] and is_declared:
                homes.setdefault(origin, (module, name))
    return homes


def _is_function(module: str, name: str) -> bool:
    value = getattr(sys.modules[module], name)
    return callable(value) and not isinstance(value, (type, GenericAlias)) and name[0].islower()


def _of_weft() -> dict[str, tuple[str, str]]:
    """Return the names of `weft` without unimplemented ones. To type checkers, a callable package
    is not a module."""
    here = vars(weft)
    functions = {
        name: (module, name) for name, module in here["_LAZY_NAMES"].items() if hasattr(weft, name)
    }
    there = [name for name in here["_SUBMODULES"] if hasattr(weft, name)]
    submodules = {
        name: ("Any" if callable(getattr(weft, name)) else f"weft.{name}", "") for name in there
    }
    return {**functions, **submodules, "__version__": ("weft._version", "__version__")}


def _of_numpy() -> dict[str, tuple[str, str]]:
    here = vars(wnp)
    sources = {
        name: (f"weft._engine.numpy.{module}", name)
        for name, (module, _) in here["_LAZY_NAMES"].items()
    }
    sources |= {name: (f"weft.numpy.{name}", "") for name in here["_SUBMODULES"]}
    return sources | {
        name: _origin(name, getattr(wnp, name)) for name in wnp.__all__ if name not in sources
    }


def _origin(name: str, value: Any) -> tuple[str, str]:
    """Return the defining module and name of a class or function; for other values, the type and an
    empty name."""
    if value is None or isinstance(value, float):
        return "None" if value is None else "float", ""
    if name in dtypes.scalar_types or value in dtypes.scalar_types.values():
        return "_ScalarType", ""
    if getattr(np, name, None) is value:
        return "numpy", name
    value = getattr(value, "__wrapped__", value)  # the function inside an API guard
    for module in (getattr(value, "__module__", None), "weft._engine.util.dtypes"):
        stated = getattr(value, "__name__", name) if isinstance(value, type) else name
        if (
            module != "weft.numpy"
            and str(module).startswith("weft.")
            and getattr(sys.modules.get(str(module)), stated, None) is value
        ):
            return str(module), stated
    return "Any", ""


def _text(module: str, table: Table, declared: dict[tuple[str, str], tuple[str, str]]) -> str:
    declarations = Declarations(module)
    stub = StubText(module, table)
    for source, names in declarations.imports.items():
        stub.imports.setdefault(source, set()).update(names - set(table))
    stub.definitions += declarations.statements
    for name, (source, old) in sorted(table.items()):
        if name in declarations.names:
            continue
        home = declared.get((source, old))
        if home == (module, name):
            _declare(stub, name)
            continue
        source, old = home or (source, old)
        if old:
            stub.imports.setdefault(source, set()).add(name if old == name else f"{old} as {name}")
        elif "." in source:
            stub.imports.setdefault(source.rpartition(".")[0], set()).add(name)
        else:
            stub.definitions.append(f"{name}: {source}\n")
            stub.imports.setdefault("typing", set()).update({source} & {"Any"})
    offered = _wrap([f'"{name}"' for name in sorted(table)], "[]")
    rules = "I001, E501" if stub.definitions else "I001"
    parts = [
        _HEAD.format(rules=rules),
        _imports(stub),
        "\n",
        *stub.definitions,
        "\n" * bool(stub.definitions),
    ]
    return "".join([*parts, f"__all__ = {offered}"])


def _declare(stub: StubText, name: str) -> None:
    value = getattr(sys.modules[stub.module], name)
    if isinstance(value, ufunc):
        stub.definitions.append(f"{name}: {'_BinaryUfunc' if value.nin == 2 else '_UnaryUfunc'}\n")
    else:
        stub.declare(name, value, _DEFAULT_TYPES[stub.module])


def _imports(stub: StubText) -> str:
    plain = [f"import {name}\n" for name in sorted(stub.imports.pop("", ()))]
    lines = [
        f"from {module} import {_wrap(sorted(names, key=_public), '()')}"
        for module, names in sorted(stub.imports.items())
        if names
    ]
    return "".join([*plain, *lines])


def _public(imported: str) -> str:
    """Return the name that `old as name` defines."""
    return imported.split()[-1]


def _of_array_methods() -> str:
    """Return the stub of the base class of arrays: the declared methods, and those of `weft.numpy` without their first parameter."""
    declarations = Declarations("array_methods")
    stub = StubText("weft._engine.core.array_methods", (), _TYPES_IN_METHODS)
    stub.imports |= declarations.imports
    own = [name for name in methods.METHODS if f"def {name}(" not in declarations.statements[-1]]
    operators = dict.fromkeys(
        (*methods.OPERATORS, *methods.COMPARISONS), "self, other: _Operand, /"
    )
    operators |= {f"r{name}": "self, other: _Operand, /" for name in methods.OPERATORS}
    operators |= dict.fromkeys(methods.UNARY, "self")
    lines = [
        f"    def __{name}__({parameters}) -> Self: ...\n"
        for name, parameters in operators.items()
        if f"def __{name}__(" not in declarations.statements[-1]
    ]
    for name in [*own, "flatten"]:
        fun = getattr(wnp, "ravel" if name == "flatten" else name)
        lines.append("    " + stub.signature(name, fun, "ArrayLike", method=True))
    lines += [f"    @property\n    def {name}(self) -> Self: ...\n" for name in methods.PROPERTIES]
    members = "".join(lines).replace("-> ArrayMethods:", "-> Self:")
    head = _HEAD.format(rules="I001, E501")
    return "".join([head, _imports(stub), "\n", *declarations.statements, members])


def _wrap(names: list[str], brackets: str) -> str:
    if brackets == "()" and sum(map(len, names)) < _WIDTH // 2:
        return ", ".join(names) + "\n"
    whole = ", ".join([name.replace(" ", "\0") for name in names])  # break lines between names only
    lines = textwrap.fill(
        whole, _WIDTH - 1, initial_indent="    ", subsequent_indent="    "
    ).replace("\0", " ")
    return f"{brackets[0]}\n{lines},\n{brackets[1]}\n"
