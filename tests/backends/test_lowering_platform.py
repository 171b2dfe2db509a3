"""Functions chosen by platform and platforms of exports follow the default devices and the arguments."""

import pytest

import weft
import weft.numpy as wnp
from weft import export
from weft._engine import backends

X = wnp.ones(3)
CHOICES = {"cpu": 1.0, "tpu": 2.0, "cuda": 3.0, "rocm": 4.0, "gpu": 5.0}


@pytest.fixture
def run_as(monkeypatch):
    """Let the CPU pass for another platform."""

    def set_platform(lowering_platform, platform):
        monkeypatch.setattr(backends.get(), "lowering_platform", lowering_platform)
        monkeypatch.setattr(backends.get(), "platform", platform)

    return set_platform


def choose(*names, default=0.0):
    """Return the number of the function that is chosen among these platforms."""
    functions = {name: lambda x, name=name: x * CHOICES[name] for name in names}
    run = lambda x: weft.lax.platform_dependent(x, default=lambda x: x * default, **functions)  # noqa: E731
    eager, compiled = run(X), weft.jit(run)(X)
    assert eager.tolist() == compiled.tolist()
    return float(eager[0])


@pytest.mark.parametrize(
    ("lowering_platform", "platform"),
    [("cpu", "cpu"), ("cuda", "gpu"), ("rocm", "gpu"), ("tpu", "tpu"), ("cpu", "xla")],
)
def test_functions_are_chosen_by_the_platform(run_as, lowering_platform, platform):
    run_as(lowering_platform, platform)
    assert choose("cpu", "tpu", "cuda", "rocm") == CHOICES[lowering_platform]
    assert choose("cpu", "tpu", "gpu") == CHOICES.get(platform, CHOICES["cpu"])
    others = {"cpu", "tpu", "cuda", "rocm"} - {lowering_platform}
    assert choose(*others) == 0.0


def test_a_platform_without_a_function_is_named(run_as):
    run_as("rocm", "gpu")
    with pytest.raises(NotImplementedError, match="no function for 'rocm' among"):
        weft.lax.platform_dependent(X, cuda=wnp.sin, cpu=wnp.cos)


@pytest.mark.parametrize("name", ["cpu", "cuda", "rocm", "tpu"])
def test_exports_run_on_their_platform(run_as, name):
    run_as(name, "gpu" if name in ("cuda", "rocm") else name)
    assert export.default_export_platform() == name
    assert export.export(weft.jit(wnp.sin))(X).platforms == (name,)
    for other in ("cpu", "cuda", "rocm", "tpu", "gpu"):
        exported = export.export(weft.jit(wnp.sin), platforms=[other])(X)
        if other == name or (other == "gpu" and name in ("cuda", "rocm")):
            assert exported.call(X).shape == (3,)
            continue
        with pytest.raises(
            ValueError, match=rf"platforms '\('{other}',\)' but it is used on '\('{name}',\)'"
        ):
            exported.call(X)
