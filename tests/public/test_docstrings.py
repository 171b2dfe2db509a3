"""Every public name has a docstring and a signature; the most used ones state shapes, dtypes and
errors, with an example that runs."""

import doctest
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import weft
from weft import scipy
from weft.scipy import stats

MOST_USED = (Path(__file__).parent / "most_used_names.txt").read_text().split()
#: functions that cannot fail
NEVER_RAISE = {"weft.effects_barrier", "weft.block_until_ready"}

#: types in `ops.rule_types` that are not public
ENGINE_ALIASES = re.compile(
    r"\b(Avals|BatchDims|ElementIndex|FormulaValue|Ints|NumPyArray|Values?)\b"
)


def public_modules() -> Iterator[ModuleType]:
    """Yield the modules of the public API, `weft` first."""
    yield weft
    for name in sorted(weft._SUBMODULES - {"api", "compat", "ops", "tools"}):
        try:
            yield importlib.import_module(f"weft.{name}")
        except ModuleNotFoundError:  # listed, and not written yet
            continue
    nested = [
        "numpy.fft",
        "numpy.linalg",
        "lax.linalg",
        "nn.initializers",
        "experimental.mesh_utils",
    ]
    for package in (scipy, stats):
        nested += [
            f"{package.__name__}.{path.stem}".removeprefix("weft.")
            for path in Path(package.__file__).parent.glob("[!_]*.py")
        ]
    yield from (importlib.import_module(f"weft.{name}") for name in nested)


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions that a module offers, without unions of types."""
    own = [
        name
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", None) == module.__name__
    ]
    for name in getattr(module, "__all__", None) or (dir(module) if module is weft else own):
        value = getattr(module, name, None)
        if (
            callable(value)
            and not isinstance(value, ModuleType)
            and typing.get_origin(value) is None
        ):
            yield f"{module.__name__}.{name}", value


@pytest.mark.parametrize("module", [*public_modules()], ids=lambda module: module.__name__)
def test_every_public_name_has_a_docstring_and_a_signature(module):
    unsaid = {name for name, value in public_names(module) if not _doc(value)}
    unsigned = {
        name
        for name, value in public_names(module)
        if inspect.isfunction(value) and not str(inspect.signature(value))
    }
    assert (unsaid, unsigned) == (set(), set())


@pytest.mark.parametrize("module", [*public_modules()], ids=lambda module: module.__name__)
def test_no_signature_shows_an_alias_of_the_engine(module):
    shown = {
        name
        for name, value in public_names(module)
        if inspect.isfunction(value) and ENGINE_ALIASES.search(str(inspect.signature(value)))
    }
    assert shown == set()


def _doc(value: Any) -> str:
    """Return the docstring of a value itself, not of its type or its bases."""
    docstring = (
        vars(value).get("__doc__") if isinstance(value, type) else getattr(value, "__doc__", None)
    )
    return docstring or ""


def resolve_name(name: str) -> tuple[Any, Any]:
    """Return the object of a dotted name, and the one that it is an attribute of."""
    parts = name.split(".")
    owner: Any = weft
    for part in parts[1:-1]:
        owner = (
            getattr(owner, part)
            if hasattr(owner, part)
            else importlib.import_module(f"{owner.__name__}.{part}")
        )
    return inspect.getattr_static(owner, parts[-1]) if isinstance(owner, type) else getattr(
        owner, parts[-1]
    ), owner


@pytest.mark.parametrize("name", MOST_USED)
def test_the_most_used_names_have_examples_and_errors(name):
    value, owner = resolve_name(name)
    if isinstance(owner, type):  # an attribute: its own docstring, or its class's
        value = getattr(owner, name.rpartition(".")[2])
        text = _doc(value) + "\n" + _doc(owner)
        assert re.search(rf">>> .*\b{name.rpartition('.')[2]}\b", text)
        return
    text = _doc(value)
    assert len(text.split()) >= 10 and ">>> " in text
    if not isinstance(value, type) and name not in NEVER_RAISE:
        assert re.search(r"[Rr]aise|Error\b|[Ee]rrors", text), "says of no error"
    assert _failures(name, value, text) == 0


def _failures(name: str, value: Any, text: str) -> int:
    """Return the number of failing examples of a docstring."""
    function = inspect.unwrap(value)
    names = getattr(function, "__globals__", None) or vars(
        importlib.import_module(getattr(function, "__module__", None) or "weft")
    )
    assumed = {"np": np, "weft": weft, "wnp": weft.numpy, "lax": weft.lax}
    example = doctest.DocTestParser().get_doctest(text, {**names, **assumed}, name, None, 0)
    return (
        doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
        .run(example)
        .failed
    )


def test_there_are_two_hundred_of_them():
    assert len(MOST_USED) == len(set(MOST_USED)) >= 200
