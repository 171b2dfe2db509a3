"""Names of JAX that weft does not support: each name in the table can be imported, and a call
raises its reason."""

import importlib
import inspect

import pytest

from weft._engine.util.refusals import _REFUSED, refusal, refused_names

NAMES = sorted(
    {
        (module, name)
        for modules in _REFUSED.values()
        for module in modules
        for name in refused_names(module)
    }
)


def _arguments(function):
    """Return one value for each required parameter of a function, positional and by keyword."""
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    by_name = {p.name: 1 for p in required if p.kind is p.KEYWORD_ONLY}
    by_position = [1 for p in required if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return by_position, by_name


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda text: text)
def test_refused_names_raise_their_reason(module, name):
    holder = importlib.import_module(module)
    function = getattr(getattr(holder, "ifrt_programs", holder), name)
    args, kwargs = _arguments(function)
    with pytest.raises(NotImplementedError) as error:
        function(*args, **kwargs)
    assert str(error.value) == str(refusal(module, name))
    assert str(error.value).startswith(f"{module}.{name}: ")


def test_unlisted_names_have_no_refusal():
    with pytest.raises(KeyError, match=r"weft\.profiler\.start_trace"):
        refusal("weft.profiler", "start_trace")
