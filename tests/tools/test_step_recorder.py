"""Recorded steps: the largest jitted function of a program, the names of its arguments, and its state."""

import functools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine import hooks
from weft.tools.automatic.search import SearchOptions, plan_function
from weft.tools.automatic.step_recorder import StepRecorder


@pytest.fixture
def recorder():
    recorder = StepRecorder()
    hooks.after_tracing.append(recorder.on_trace)
    hooks.after_calls.append(recorder.on_call)
    yield recorder
    hooks.after_tracing.remove(recorder.on_trace)
    hooks.after_calls.remove(recorder.on_call)


def test_function_with_most_operations_is_chosen(recorder):
    large = weft.jit(lambda x: x @ x)
    large.__wrapped__.__name__ = "large"
    x = np.ones((64, 64), np.float32)
    for f in (lambda x: x + 1, large, lambda x: x.sum()):
        weft.jit(f)(x)
    assert recorder.largest().flops >= 2 * 64**3


def test_last_of_equal_functions_is_chosen(recorder):
    def inner(x):
        return x @ x

    def outer(x):
        return weft.jit(inner)(x)

    weft.jit(outer)(np.ones((16, 16), np.float32))
    assert recorder.largest().name == "outer"


def test_types_are_those_of_the_first_call(recorder):
    f = weft.jit(lambda x: x * 2)
    f(np.ones(16, np.float32))
    f(np.ones(1024, np.float32))
    assert recorder.largest().planned.args[0].shape == (16,)


def test_keywords_and_static_arguments_are_bound(recorder):
    def step(x, power, *, scale, shift):
        return (x @ x) ** power, scale + shift

    f = weft.jit(step, static_argnums=1, donate_argnames=("scale",), donate_argnums=0)
    x = np.random.default_rng(0).random((8, 8), np.float32)
    expected = f(x.copy(), 3, shift=1.0, scale=x.copy())
    step_call = recorder.largest()
    assert [a.shape for a in step_call.planned.args] == [(8, 8), (8, 8), ()]
    assert step_call.planned.donate_argnums == (0, 1)
    for actual, result in zip(step_call.planned.function(x, x, 1.0), expected, strict=True):
        np.testing.assert_allclose(actual, result, rtol=1e-5)


def test_functions_of_the_library_are_not_steps(recorder):
    weft.numpy.linalg.norm(np.ones((32, 32), np.float32))
    assert recorder.largest() is None


# --- names


class Wrapper:
    """A library's jit: it flattens arguments, passes their arrays in reverse, and keeps the rest static."""

    def __init__(self, fun):
        functools.update_wrapper(self, fun)
        self.jitted = weft.jit(self._run, static_argnums=1)
        self.calls = 0

    def _run(self, arrays, static):
        self.calls += 1
        structure, others = static
        rest = iter(arrays[::-1])
        leaves = [next(rest) if x is None else x for x in others]
        args, kwargs = weft.tree.unflatten(structure, leaves)
        return self.__wrapped__(*args, **kwargs)

    def __call__(self, *args, **kwargs):
        leaves, structure = weft.tree.flatten((args, kwargs))
        arrays = [x for x in leaves if isinstance(x, weft.Array)]
        others = tuple(None if isinstance(x, weft.Array) else x for x in leaves)
        return self.jitted(arrays[::-1], (structure, others))


@pytest.fixture
def wrapped_step():
    def step(model, rate, batch):
        loss, grads = weft.value_and_grad(lambda m: ((batch @ m["w"] + m["b"]) ** 2).mean())(model)
        return loss, weft.tree.map(lambda p, g: p - rate * g, model, grads)

    return Wrapper(step)


def model_and_batch():
    ones = lambda *shape: wnp.ones(shape, np.float32)
    return {"w": ones(16, 16), "b": ones(16)}, ones(8, 16)


def test_names_are_those_of_the_wrapped_function(recorder, wrapped_step):
    model, batch = model_and_batch()
    wrapped_step(model, 0.1, batch=batch)
    step = recorder.largest()
    assert step.planned.names == ["batch", "model['w']", "model['b']"]


def test_names_of_numbers_are_those_of_jit(recorder):
    """Numbers are the same objects wherever they occur."""
    weft.jit(lambda x, count, scale: (x @ x) * count * scale)(np.ones((4, 4)), 1, 1)
    assert recorder.largest().planned.names == ["x", "count", "scale"]


# --- state


def test_results_of_the_call_before_are_state(recorder, wrapped_step):
    model, batch = model_and_batch()
    for _ in range(2):
        _, model = wrapped_step(model, 0.1, batch)
    step = recorder.largest()
    assert step.state == ["model['b']", "model['w']"]
    assert step.planned.carried == ((1, 2), (2, 1))  # results are loss, b, w
    assert step.planned.donate_argnums == ()


def test_one_call_has_no_state(recorder, wrapped_step):
    model, batch = model_and_batch()
    wrapped_step(model, 0.1, batch)
    assert recorder.largest().state == []


def test_state_has_the_same_shardings_as_its_results(recorder):
    """Results that moments and weights replace have one type; only the calls tell which is which."""
    shape = (512, 512)

    @weft.jit
    def step(moment, weight, x):
        grad = weft.grad(lambda w: (wnp.tanh(x @ w) ** 2).sum())(weight)
        moment = 0.9 * moment + grad
        return weight - moment, moment

    moment, weight, x = np.zeros(shape, "f"), np.ones(shape, "f"), np.ones((64, 512), "f")
    for _ in range(2):
        weight, moment = step(moment, weight, x)
    found = recorder.largest().planned
    assert found.carried == ((0, 1), (1, 0))
    plan = plan_function(found, SearchOptions(weft.make_mesh((8,), ("x",))))
    moment, weight, _ = plan.in_shardings
    assert plan.out_shardings == (weight, moment)
    assert plan.decision.given_specs.ties == {0: 1, 1: 0}


def test_recorded_program_is_not_traced_again(recorder, wrapped_step):
    """What a library does around a call need not be possible later."""
    model, batch = model_and_batch()
    for _ in range(2):
        _, model = wrapped_step(model, 0.1, batch)
    calls = wrapped_step.calls
    plan = plan_function(recorder.largest().planned, SearchOptions(weft.make_mesh((8,), ("x",))))
    assert wrapped_step.calls == calls
    assert [v.name for v in plan.inputs] == ["batch", "model['w']", "model['b']"]
    arrays = [batch, model["w"], model["b"]]
    loss, after = plan.jit()(*plan.place((arrays,)))
    expected_loss, expected = wrapped_step(model, 0.1, batch)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    np.testing.assert_allclose(after["w"], expected["w"], rtol=1e-5)
