"""Arrays created from constants during tracing are values of the program."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.core.trace import Tracer
from weft.sharding import Mesh, NamedSharding, PartitionSpec

HELD = wnp.arange(3)
ROWS = np.arange(3.0, dtype=np.float32)
MESH = Mesh(np.array(weft.devices()[:1]), ("a",))

MAKERS = {
    "list": lambda: wnp.asarray([0, 1]),
    "copied list": lambda: wnp.array([0.5, 1]),
    "bool": lambda: wnp.asarray(True),
    "int": lambda: wnp.asarray(3),
    "complex": lambda: wnp.array([1j]),
    "no elements": lambda: wnp.asarray(np.zeros((2, 0), np.float32)),
    "NumPy array": lambda: wnp.asarray(ROWS),
    "NumPy array, copied": lambda: wnp.array(ROWS),
    "NumPy array, other dtype": lambda: wnp.asarray(ROWS, "int32"),
    "NumPy scalar": lambda: wnp.asarray(np.float32(2)),
    "bfloat16": lambda: wnp.asarray([1, 2], "bfloat16"),
    "ndmin": lambda: wnp.array([1, 2], ndmin=3),
    "copy of an array": lambda: wnp.array(HELD),
    "scalar type": lambda: wnp.float32(1),
    "scalar type of a list": lambda: wnp.int32([1, 2]),
    "device_put": lambda: weft.device_put(ROWS),
    "device_put of an array": lambda: weft.device_put(HELD),
    "device_put with a sharding": lambda: weft.device_put(
        ROWS, NamedSharding(MESH, PartitionSpec("a"))
    ),
}

TRACED = {
    "jit": lambda f, x: weft.jit(f)(x),
    "scan": lambda f, x: lax.scan(lambda carry, _: (f(carry), None), x, None, length=1)[0],
    "jit(grad)": lambda f, x: weft.jit(weft.grad(f))(x),
    "grad(jit)": lambda f, x: weft.grad(weft.jit(f))(x),
    "jit(vmap)": lambda f, x: weft.jit(weft.vmap(f))(x[None]),
    "vmap(jit)": lambda f, x: weft.vmap(weft.jit(f))(x[None]),
    "eval_shape": weft.eval_shape,
}

EVALUATED = {
    "no transformation": lambda f, x: f(x),
    "grad": lambda f, x: weft.grad(f)(x),
    "linearize": lambda f, x: weft.linearize(f, x),
    "vmap": lambda f, x: weft.vmap(f)(x[None]),
}


def _make(maker, transform) -> list:
    """Return the result of `maker` inside a transformed function."""
    seen = []

    def fun(x):
        seen.append(maker())
        return x

    transform(fun, wnp.float32(1))
    return seen


@pytest.mark.parametrize("transform", TRACED.values(), ids=TRACED)
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_constants_are_traced(maker, transform):
    for array in _make(maker, transform):
        assert isinstance(array, Tracer)
        expected = maker()
        assert (array.shape, array.dtype, array.weak_type) == (
            expected.shape,
            expected.dtype,
            expected.weak_type,
        )


@pytest.mark.parametrize("transform", EVALUATED.values(), ids=EVALUATED)
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_constants_are_arrays_outside_of_programs(maker, transform):
    for array in _make(maker, transform):
        assert isinstance(array, wnp.ndarray) and not isinstance(array, Tracer)


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_values_of_traced_constants(maker):
    expected, array = maker(), weft.jit(maker)()
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(array), np.asarray(expected))


def test_compile_time_evaluation_gives_arrays():
    @weft.jit
    def fun(x):
        with weft.ensure_compile_time_eval():
            return x * int(wnp.asarray(3))

    assert fun(2.0) == 6


@pytest.mark.parametrize("make", [wnp.array, wnp.asarray, weft.device_put])
@pytest.mark.parametrize(
    "transform",
    [weft.grad, weft.vmap, lambda f: lambda x: weft.jvp(f, (x,), (x,))[1]],
    ids=["grad", "vmap", "jvp"],
)
def test_transformations_at_compile_time_give_arrays(transform, make):
    def double(x):
        constant = make(np.float32(2))
        seen.append(constant)
        return x * constant

    @weft.jit
    def fun(x):
        with weft.ensure_compile_time_eval():
            argument = wnp.ones(2 if transform is weft.vmap else ())
            seen.append(transform(double)(argument))
        return x

    seen = []
    fun(1.0)
    constant, result = seen
    assert not isinstance(constant, Tracer)
    np.testing.assert_array_equal(np.asarray(result), np.full(result.shape, 2.0))


def test_an_array_stays_itself():
    seen = []
    weft.jit(lambda x: seen.append(wnp.asarray(HELD)) or x)(1.0)
    assert seen[0] is HELD


def test_constants_add_no_equations():
    program = weft.make_jaxpr(
        lambda x: x + wnp.asarray([1.0, 2.0]) * weft.device_put(np.float32(2))
    )(wnp.float32(1))
    assert [str(eqn.primitive) for eqn in program.eqns] == ["mul", "add"]


def test_a_traced_constant_is_no_python_number():
    with pytest.raises(weft.errors.ConcretizationTypeError):
        weft.jit(lambda x: x * int(wnp.asarray(3)))(1.0)
    with pytest.raises(weft.errors.TracerArrayConversionError):
        weft.jit(lambda x: x * np.asarray(wnp.asarray([3])))(1.0)


def test_a_constant_of_one_program_is_refused_by_another():
    constants = []
    weft.jit(lambda x: constants.append(wnp.asarray([1, 2])) or x)(1.0)
    with pytest.raises(weft.errors.UnexpectedTracerError):
        weft.jit(lambda x: x + constants[0])(1.0)
