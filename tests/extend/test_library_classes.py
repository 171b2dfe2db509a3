"""Classes of libraries: primitives, traces, types and array subclasses."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.extend.library_primitives import X
from weft import lax
from weft.extend.core import (
    Primitive,
    ShapedArray,
    Trace,
    Tracer,
    set_current_trace,
    take_current_trace,
)
from weft.interpreters import ad, mlir, xla


def test_subclasses():
    class Shouting(Primitive):
        multiple_results = True

        def bind(self, *args, **params):
            return super().bind(*args, **{**params, "loud": True})

    p = Shouting("shout")
    p.def_impl(lambda x, loud: [x, loud])
    assert p.multiple_results and p.bind(1) == [1, True]
    assert (
        isinstance(p, Primitive)
        and isinstance(lax.sin_p, Primitive)
        and not isinstance(lax.sin_p, Shouting)
    )


def test_a_trace_of_a_library():
    """Values carry a unit. The trace binds other primitives under the surrounding trace, of any kind."""

    class Unit(Tracer):
        def __init__(self, trace, value, power):
            super().__init__(trace, weft.typeof(value))
            self.value, self.power = value, power

    class Units(Trace):
        def process_primitive(self, primitive, tracers, params):
            pairs = [(t.value, t.power) if isinstance(t, Unit) else (t, 0) for t in tracers]
            with set_current_trace(self.parent_trace):
                out = primitive.bind(*[v for v, _ in pairs], **params)
            return Unit(
                self,
                out,
                sum(power for _, power in pairs) if primitive is lax.mul_p else pairs[0][1],
            )

    def cubed(x):
        with take_current_trace() as parent:
            trace = Units(parent)
            with set_current_trace(trace, check_leaks=False):
                y = lax.mul(lax.mul(Unit(trace, x, 1), Unit(trace, x, 1)), Unit(trace, x, 1))
        assert y.power == 3 and y._trace.main is trace and trace.is_valid()
        return y.value

    for g in (cubed, weft.jit(cubed)):
        assert g(2.0) == 8.0
    assert weft.vmap(weft.grad(cubed))(X).tolist() == pytest.approx((3 * X**2).tolist())
    with (
        pytest.raises(NotImplementedError, match="must define process_primitive"),
        set_current_trace(Trace()),
    ):
        lax.sin(1.0)


@weft.custom_jvp
def _cubed(x):
    return x**3


_cubed.defjvp(lambda primals, tangents: (_cubed(*primals), 5 * tangents[0]))


@weft.custom_vjp
def _clipped(x):
    return x * 2


_clipped.defvjp(lambda x: (_clipped(x), x), lambda x, ct: (7 * ct * x,))


@pytest.mark.parametrize("version", [None, "0.9.1", "0.10.2"])
@pytest.mark.parametrize(
    "fun, slope", [(_cubed, 5.0), (_clipped, 14.0)], ids=["custom_jvp", "custom_vjp"]
)
def test_calls_with_rules_are_bound_again_by_their_functions(fun, slope, version):
    (eqn,) = weft.make_jaxpr(fun)(2.0).eqns
    weft.config.update("jax_api", version)
    try:
        bound = eqn.primitive.get_bind_params(eqn.params)
    finally:
        weft.config.update("jax_api", None)
    assert isinstance(bound, dict) == (version == "0.10.2")
    functions, params = (bound.pop("subfuns"), bound) if isinstance(bound, dict) else bound
    assert float(functions[0].call_wrapped(2.0)[0]) == float(fun(2.0))
    as_parameter = lambda x: eqn.primitive.bind(x, subfuns=functions, **params)[0]
    leading = lambda x: eqn.primitive.bind(*functions, x, **params)[0]
    for again in (as_parameter, leading):
        assert float(again(2.0)) == float(fun(2.0)) and float(weft.grad(again)(2.0)) == slope
        assert float(weft.jit(weft.vmap(weft.grad(again)))(np.full(3, 2, np.float32))[1]) == slope
    if fun is _cubed:
        values = functions[1].call_wrapped(2.0, 1.0)
        assert [float(x) for x in values] == [8.0, 5.0]
    else:
        *residuals, out = functions[1].call_wrapped(2.0)
        assert [float(functions[2].call_wrapped(*residuals, 1.0)[0]), float(out)] == [14.0, 4.0]
        with pytest.raises(NotImplementedError, match="get_bind_params"):
            weft.grad(
                lambda x: eqn.primitive.bind(
                    x, subfuns=(functions[0], functions[0], functions[2]), **params
                )[0]
            )(2.0)


class Angle:
    """A value of a library that stands for an array."""

    def __init__(self, degrees):
        self.degrees = degrees


def test_types_of_libraries_stand_for_arrays():
    x = Angle(np.ones(3, np.float32))
    with pytest.raises(TypeError, match="Angle"):
        wnp.sin(x)
    with pytest.raises(KeyError):
        xla.canonicalize_dtype_handlers[Angle]
    xla.pytype_aval_mappings[Angle] = lambda a: xla.pytype_aval_mappings[np.ndarray](a.degrees)
    xla.canonicalize_dtype_handlers[Angle] = lambda a: a.degrees
    try:
        assert weft.typeof(x) == weft.typeof(x.degrees)
        converted = xla.canonicalize_dtype_handlers[Angle](x)
        for result in (
            wnp.add(x, 1),
            weft.jit(lambda a: a + 1)(x),
            weft.jit(lambda: lax.add(x, x))(),
            converted + 1,
        ):
            assert result.tolist() == [2, 2, 2]
    finally:
        del xla.pytype_aval_mappings[Angle], xla.canonicalize_dtype_handlers[Angle]
    with pytest.raises(TypeError, match="a type and a function"):
        xla.pytype_aval_mappings["Angle"] = len


def test_subclasses_of_numpy_arrays_are_accepted_unchanged():
    class Named(np.ndarray):
        pass

    x = np.ones(2, np.float32).view(Named)
    for table in (xla.canonicalize_dtype_handlers, xla.pytype_aval_mappings):
        assert Named in table
        table[Named] = table[np.ndarray]
    try:
        assert weft.typeof(x) == ShapedArray((2,), np.dtype("float32")) and weft.jit(wnp.add)(
            x, x
        ).tolist() == [2, 2]
        assert (
            xla.canonicalize_dtype_handlers[Named](x).tolist() == [1, 1]
            and xla.canonicalize_dtype_handlers[float](2.0) == 2
        )
    finally:
        for table in (xla.canonicalize_dtype_handlers, xla.pytype_aval_mappings):
            del table[Named]


def test_classes_of_libraries_state_rules_as_methods():
    class Tagged(Primitive):
        multiple_results = True

        def __init__(self):
            super().__init__("tagged")
            mlir.register_lowering(self, lambda ctx, *xs: list(xs))
            ad.primitive_jvps[self] = lambda xs, ts: (self.bind(*xs), list(ts))

        def impl(self, *xs):
            return list(xs)

        def abstract_eval(self, *avals):
            return list(avals), set()

    p = Tagged()
    f = lambda x: p.bind(x * x, x)[0].sum()
    assert f(X) == weft.jit(f)(X) and weft.grad(f)(2.0) == weft.jit(weft.grad(f))(2.0) == 4.0
    assert [e.primitive for e in weft.make_jaxpr(f)(X).eqns][1] is p


def test_a_trace_takes_values_as_they_are():
    with take_current_trace() as trace:
        assert trace.full_raise(X) is X
