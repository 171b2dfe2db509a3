"""The types in stubs agree with the functions at runtime: parameters, results, and the attributes of arrays."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.core import array_methods
from weft._engine.core.trace import Tracer
from weft.tools.stubs import signatures
from weft.tools.stubs.module_names import defined_names

MODULES = """numpy numpy.linalg numpy.fft lax lax.linalg random nn ops scipy.linalg scipy.signal scipy.special""".split()
DECLARED = {
    "weft": "weft",
    "lax": "weft.lax",
    "nn": "weft.nn",
    "numpy": "weft.numpy",
    "numpy_linalg": "weft.numpy.linalg",
    "scipy_special": "weft.scipy.special",
}
FOLDER = Path(signatures.__file__).parent / "declarations"

_matrix, _vector = (
    weft.ShapeDtypeStruct((4, 4), np.float32),
    weft.ShapeDtypeStruct((4,), np.float32),
)
_ints, _bools = weft.ShapeDtypeStruct((4,), np.int32), weft.ShapeDtypeStruct((4, 4), np.bool_)
_complex = weft.ShapeDtypeStruct((4, 4), np.complex64)
#: arguments that are tried in turn until a call of the function is valid
ARGUMENTS = [
    *[(_matrix,) * count for count in (1, 2)],
    *[(_ints,), (_ints, _ints), (_matrix, 1), (_vector,), (_vector, _vector), (_matrix,) * 3],
    *[
        ((2, 2),),
        (4,),
        (_vector, 1),
        (_matrix, _ints),
        (_ints, 4),
        ([_matrix, _matrix],),
        (_bools,),
    ],
    *[(_complex,), (_matrix, 0, 1), ((2, 2), 1.0), (_ints, [_matrix] * 4), (0, 1), (_vector,) * 3],
    *[(_ints, _vector, 4), (_matrix, (0,)), (_matrix, (1, 0)), ([_bools], [_matrix])],
]
_key = weft.eval_shape(lambda: weft.random.key(0))
ARGUMENTS_OF_RANDOM = [
    *[(_key,), (_key, _matrix), (_key, _ints, _matrix), (_key, _matrix, _matrix), (_key, (3,))],
    *[(_key, (3,), 0, 5), (_key, 4), (_key, _vector, _matrix), (_key, 0.0, 1.0), (_key, 0.5, 0.5)],
    *[(_key, 0.0, 1.0, (2,)), (_key, 1.0, 2.0, 3.0), (_key, 3, _vector), (0,), (_key, 3, (2,))],
]


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]


def result_of(fun, arguments):
    """Return the traced result of the first valid call, in a list; an empty list if none is valid."""
    for args in arguments:
        arrays = [i for i, x in enumerate(args) if isinstance(x, (weft.ShapeDtypeStruct, list))]
        results = []

        def call(*values, args=args, arrays=arrays, results=results):
            traced = dict(zip(arrays, values))
            results.append(fun(*[traced.get(i, x) for i, x in enumerate(args)]))

        try:
            weft.eval_shape(call, *[args[i] for i in arrays])
        except Exception:  # the function takes other arguments
            continue
        return results
    return []


def agrees(declared: str, result) -> bool:
    if declared in ("Array", "_T"):
        return isinstance(result, weft.Array)
    if declared.startswith("tuple["):
        count = len(result) if "..." in declared else declared.count(",") + 1
        return isinstance(result, tuple) and len(result) == count
    if declared.startswith("list["):
        return isinstance(result, list)
    if declared == "None":
        return result is None
    names = {cls.__name__ for cls in type(result).__mro__}
    return bool(names & set(re.sub(r"np\.|_builtins\.|\[Any\]", "", declared).split(" | ")))


@pytest.mark.filterwarnings("ignore")
def test_declared_results_are_what_functions_return():
    """Of functions with one signature; the test calls functions of simple arguments."""
    wrong, checked = [], 0
    for name in MODULES:
        module = importlib.import_module(f"weft.{name}")
        arguments = ARGUMENTS_OF_RANDOM if name == "random" else ARGUMENTS
        for node in functions(Path(module.__file__).with_suffix(".pyi")):
            declared = ast.unparse(node.returns)
            if node.decorator_list or declared == "Any":
                continue
            with np.printoptions():  # one of the functions sets them
                results = result_of(getattr(module, node.name), arguments)
            checked += len(results)
            wrong += [(name, node.name, declared, r) for r in results if not agrees(declared, r)]
    assert checked > 600 and wrong == []


def parameters(node: ast.FunctionDef) -> dict[str, bool]:
    """Return the parameters of a declaration, and whether each has a default."""
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults = len(node.args.defaults)
    required = {arg.arg: False for arg in positional[: len(positional) - defaults]}
    optional = {arg.arg: True for arg in positional[len(positional) - defaults :]}
    keywords = {a.arg: d is not None for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults)}
    rest = [arg.arg for arg in (node.args.vararg, node.args.kwarg) if arg is not None]
    return {**required, **optional, **keywords, **dict.fromkeys(rest, True)}


@pytest.mark.parametrize("file", DECLARED)
def test_declarations_have_the_parameters_of_functions(file):
    """All overloads together have all parameters; each has the required ones, and no other names."""
    module = importlib.import_module(DECLARED[file])
    overloads: dict[str, list[dict[str, bool]]] = {}
    for node in functions(FOLDER / f"{file}.pyi"):
        overloads.setdefault(node.name, []).append(parameters(node))
    assert overloads
    for name, declared in overloads.items():
        actual = inspect.signature(getattr(module, name)).parameters
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        required = {
            p.name for p in actual.values() if p.default is p.empty and p.kind not in variadic
        }
        assert set().union(*declared) == set(actual), name
        for one in declared:
            assert required <= set(one), name
            assert not {p for p, has_default in one.items() if has_default} & required, name


def members(node: ast.ClassDef) -> set[str]:
    return {child.name for child in node.body if isinstance(child, ast.FunctionDef)}


@pytest.mark.parametrize("cls", [weft.Array, Tracer], ids=["Array", "Tracer"])
def test_stub_of_arrays_has_the_attached_attributes(cls):
    """Operators and methods that `weft.numpy` attaches, and no others."""
    path = Path(inspect.getfile(array_methods)).with_suffix(".pyi")
    classes = {
        node.name: members(node)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    (source,) = ast.parse(inspect.getsource(cls)).body
    own = {name for node in source.body for name in defined_names(node)} | set(cls.__slots__)
    public = {name for name in dir(np.ndarray) if name not in dir(object)}
    attached = {name for name in vars(cls) if name not in own and name in public}
    refused = {"__setitem__"}  # which only raises an error
    assert len(attached) > 60 and attached - classes["ArrayMethods"] == refused
    assert {name for name in classes["ArrayMethods"] if not hasattr(cls, name)} == set()
    update = {name for name in dir(wnp.zeros(2).at[0]) if name[0] != "_"} - {"array", "index"}
    assert classes["IndexedUpdate"] == update
