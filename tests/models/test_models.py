"""A compiled training step equals op-by-op execution and a float64 evaluation."""

import numpy as np
import pytest

import weft
from tests.models.registry import MODELS
from tests.verification import faults
from weft.errors import VerificationError
from weft.ir.jaxpr import subjaxprs
from weft.transforms.physical import physicalize
from weft.util.config import Override
from weft.verification import values
from weft.verification.evaluation import op_by_op
from weft.verification.tolerance import Tolerance, difference, precisions

SIZES = ["small", pytest.param("large", marks=pytest.mark.slow)]


def widened(args):
    """Return the arguments with float64 instead of float32."""
    return weft.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, args)


def traced(step, args):
    """Return the program of a step, with random keys as arrays of integers."""
    return physicalize(weft.make_jaxpr(step)(*args))


def float64_results(step, args):
    """Return the results of a step evaluated by NumPy in float64."""
    with weft.enable_x64(True):
        args = widened(args)
        program = traced(step, args)
        assert all(v.aval.dtype != np.float32 for v in program.outvars)
        return op_by_op(program, [np.asarray(x) for x in weft.tree.leaves(args)])


def compare_with_float64(step, args, got):
    """Return the first result that differs from float64 by more than the rounding of float32."""
    program = traced(step, args)
    leaves = [np.asarray(x) for x in weft.tree.leaves(args)]
    tolerance = Tolerance(
        float64_results(step, args), precisions(program),
        lambda k: op_by_op(program, leaves, noise=k),
    )
    return difference([np.asarray(x) for x in got], tolerance.want, tolerance)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_compiled_step_equals_both_evaluations(name, size):
    step, args = MODELS[name].step, MODELS[name].example(size, 0)
    before = values.calls_compared[0]
    with Override(check="values"):
        got = weft.tree.leaves(weft.jit(step)(*args))
    assert values.calls_compared[0] > before
    assert all(np.isfinite(x).all() for x in got)
    found = compare_with_float64(step, args, got)
    assert found is None, str(found)


def test_registry_has_25_models_and_a_second_layout():
    assert len(MODELS) == 26 and {"cnn_nchw", "cnn_nhwc"} < set(MODELS)
    assert all(name == model.name for name, model in MODELS.items())


@pytest.mark.parametrize("name", MODELS)
def test_examples_depend_on_size_and_seed(name):
    step, example = MODELS[name].step, MODELS[name].example
    small, large = (largest_value(traced(step, example(size, 0))) for size in ("small", "large"))
    assert small < 8000 < large
    first, again, other = (weft.tree.leaves(example("small", seed)) for seed in (0, 0, 1))
    assert all(np.array_equal(x, y) for x, y in zip(first, again))
    assert not all(np.array_equal(x, y) for x, y in zip(first, other))


def largest_value(program):
    """Return the number of elements of the largest value in a program and its inner programs."""
    found = max(v.aval.size for v in (*program.invars, *program.outvars))
    for eqn in program.eqns:
        inner = [largest_value(p) for _, p in subjaxprs(eqn.params)]
        found = max([found, *inner, *(v.aval.size for v in eqn.outvars)])
    return found


@pytest.mark.parametrize("name", ["cnn_nchw", "kalman_filter", "pinn"])
def test_a_small_error_in_any_result_is_found(name):
    step, args = MODELS[name].step, MODELS[name].example("small", 0)
    got = [np.array(x) for x in weft.tree.leaves(weft.jit(step)(*args))]
    for i, right in enumerate(got):
        wrong = right.copy()
        at = np.unravel_index(np.argmax(np.abs(right)), right.shape)
        wrong[at] = right[at] + 1 if right.dtype.kind == "i" else right[at] * 1.01
        found = compare_with_float64(step, args, [*got[:i], wrong, *got[i + 1:]])
        assert found is not None and (found.result, found.count) == (i, 1)


def test_a_fault_of_the_compiler_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    faults.in_lowering(monkeypatch, "exp", "sin")
    step, args = lambda *args: MODELS["vae"].step(*args), MODELS["vae"].example("small", 0)
    with Override(check="values"), pytest.raises(VerificationError):
        weft.jit(step)(*args)
    with Override(check=""):
        got = weft.tree.leaves(weft.jit(step)(*args))
    assert compare_with_float64(step, args, got) is not None
