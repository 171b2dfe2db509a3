"""Public names have the kind and the parameters that they have in JAX 0.10.2.

The facts about JAX are read from ../shared/api_kinds_0.10.2.json; without this file these tests are skipped. Names that weft
refuses have objects of the same kind.
"""

import importlib
import inspect
import json
import types
import typing
import warnings
from pathlib import Path

import pytest

from weft.compat import install_as_jax, uninstall

FACTS = Path(__file__).parents[2].parent / "shared" / "api_kinds_0.10.2.json"
pytestmark = pytest.mark.skipif(
    not FACTS.exists(), reason="../shared/api_kinds_0.10.2.json is not available"
)

#: numbers and containers are compared by their type
PLAIN = (int, float, str, bool, tuple, frozenset)


@pytest.fixture(scope="module", autouse=True)
def shim():
    install_as_jax()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    uninstall()


def kind_of(value):
    """Return the kind of a value in the words of the facts."""
    if isinstance(value, type):
        return "exception" if issubclass(value, BaseException) else "class"
    if isinstance(value, types.ModuleType):
        return "module"
    if typing.get_origin(value) in (typing.Union, types.UnionType):
        return f"union ({type(value).__module__})"
    if callable(value):
        return "callable"
    return f"value of type {type(value).__name__}" if isinstance(value, PLAIN) else "value"


def parameters_of(value):
    """Return names of parameters that can be passed by keyword, and whether there are variable ones; None if Python does not know."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    by_name = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return by_name, any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def facts():
    return json.loads(FACTS.read_text()) if FACTS.exists() else {}


def modules():
    return sorted({name.rpartition(".")[0] for name in facts()})


@pytest.mark.parametrize("module", modules())
def test_kinds_and_parameters_are_those_of_jax(module):
    here, differences = importlib.import_module(module), []
    for fullname, (kind, parameters) in facts().items():
        if fullname.rpartition(".")[0] != module:
            continue
        value = getattr(here, fullname.rpartition(".")[2])
        signature = parameters_of(value) if callable(value) and parameters else None
        if kind_of(value) != kind:
            differences.append(f"{fullname}: {kind_of(value)}, JAX has {kind}")
        elif signature and not signature[1]:
            names = [p for p in parameters if p != "/" and not p.startswith("*")]
            differences += [
                f"{fullname}: no parameter {name}" for name in names if name not in signature[0]
            ]
    assert "\n".join(differences) == ""
