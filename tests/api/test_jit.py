"""jit: caching, all parameters, donation, errors, stages; counts are exact."""

import copy
import gc
import operator
import pickle
import threading
import warnings
from functools import partial

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P


def counted(f):
    """Return `f` and a list that grows with every trace of it."""
    traces = []

    def wrapped(*args, **kwargs):
        traces.append(1)
        return f(*args, **kwargs)

    return wrapped, traces


def test_one_trace_per_kind_of_arguments():
    f, traces = counted(lambda x: x * 2)
    g = weft.jit(f)
    g(wnp.ones((3, 4)))
    g(wnp.zeros((3, 4)))
    assert len(traces) == 1
    g(wnp.ones((3, 5)))
    assert len(traces) == 2  # another shape
    g(wnp.ones((3, 4), wnp.int32))
    assert len(traces) == 3  # another dtype
    g(1.0), g(2.0)
    assert len(traces) == 4  # a value is not part of the key
    g(np.ones((3, 4), np.float32))
    assert len(traces) == 4  # a NumPy array has the type of an array


def test_tree_structure_is_part_of_the_key_and_dict_order_is_not():
    f, traces = counted(lambda d: d["a"] + d["b"])
    g = weft.jit(f)
    x, y = wnp.ones(2), wnp.zeros(2)
    g({"a": x, "b": y}), g({"b": y, "a": x})
    assert len(traces) == 1
    h, traces = counted(lambda t: t[0])
    h = weft.jit(h)
    h((x, y)), h([x, y]), h((x, None))
    assert len(traces) == 3


def test_static_arguments_by_number_and_name():
    f, traces = counted(lambda x, n, flag=False: x * n if flag else x + n)
    g = weft.jit(f, static_argnums=1, static_argnames="flag")
    assert (
        float(g(2.0, 3)) == 5.0 and float(g(2.0, 3, flag=True)) == 6.0 and float(g(2.0, 4)) == 6.0
    )
    assert len(traces) == 3
    g(5.0, 3)
    assert len(traces) == 3
    h = weft.jit(lambda x, n: wnp.zeros(n) + x, static_argnames="n")
    assert h(1.0, 4).shape == h(1.0, n=4).shape == (4,)
    with pytest.raises(ValueError, match="not hashable"):
        weft.jit(lambda x, n: x, static_argnums=1)(1.0, [1])
    with pytest.raises(ValueError, match="invalid argnames"):
        weft.jit(lambda x: x, static_argnames="y")
    with pytest.raises(ValueError, match="static and donated"):
        weft.jit(lambda x: x, static_argnums=0, donate_argnums=0)


def test_donated_arguments_cannot_be_used_again():
    f = weft.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = wnp.ones(8), wnp.ones(8)
    for _ in range(3):
        x = f(x, y)
    np.testing.assert_allclose(x, 4.0)
    first = wnp.ones(8)
    f(first, y)
    assert first.is_deleted() and not y.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        first + 1
    g = weft.jit(
        lambda params, scale: {k: v * scale for k, v in params.items()}, donate_argnames="params"
    )
    params = {"w": wnp.ones(3)}
    assert float(g(params=params, scale=2.0)["w"][0]) == 2.0 and params["w"].is_deleted()


HOLDERS = {
    "another placement": lambda x: weft.device_put(x, weft.devices()[0]),
    "a NumPy view": np.asarray,
    "a copy that shares": copy.copy,
    "a shard": lambda x: x.addressable_shards[0].data,
    "nothing": lambda x: None,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_donation_leaves_those_alone_who_share_the_memory(holder):
    f = weft.jit(lambda x: x + 1, donate_argnums=0)
    for k in range(4):  # by Python at first, then by native dispatch
        x = wnp.arange(8.0) + k
        held = HOLDERS[holder](x)
        np.testing.assert_array_equal(f(x), np.arange(8.0) + k + 1)
        assert x.is_deleted()
        if held is not None:
            np.testing.assert_array_equal(held, np.arange(8.0) + k)


def test_a_donated_shard_leaves_its_array_alone():
    f = weft.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(4):
        x = wnp.arange(8.0) + 0
        f(x.addressable_shards[0].data)
        np.testing.assert_array_equal(x, np.arange(8.0))


def test_an_array_donated_and_read_by_one_call():
    f = weft.jit(lambda x, y: (x + 1, 2 * y[::-1]), donate_argnums=0)
    for _ in range(4):
        x = wnp.arange(8.0) + 0
        with pytest.raises(weft.errors.JaxRuntimeError, match="x is donated and is passed twice"):
            f(x, x)
        one, two = f(x, x.copy())
        np.testing.assert_array_equal(one, np.arange(8.0) + 1)
        np.testing.assert_array_equal(two, 2 * np.arange(8.0)[::-1])


@pytest.mark.parametrize(
    ("fun", "usable"),
    [
        (lambda x: x.sum(), False),
        (lambda x: x.reshape(2, 4) * 2, True),
        (lambda x: x.astype("int32"), True),
        (lambda x: lax.bitcast_convert_type(x, "int16"), False),
        (lambda x: (x + 1)[:4], False),
    ],
)
def test_unusable_donations_warn_and_keep_the_array(fun, usable):
    f = weft.jit(fun, donate_argnums=0)
    for first in (True, False):
        x = wnp.arange(8.0) + 0
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            f(x)
        assert x.is_deleted() == usable
        assert [str(w.message).split("\n")[0] for w in seen] == (
            ["Some donated buffers were not usable: float32[8]."] if first and not usable else []
        )


def test_one_result_takes_one_donation():
    x, y = wnp.arange(8.0), wnp.arange(8.0)
    with pytest.warns(UserWarning, match=r"not usable: float32\[8\]"):
        weft.jit(lambda x, y: x + y, donate_argnums=(0, 1))(x, y)
    assert [x.is_deleted(), y.is_deleted()].count(True) == 1
    unread = wnp.arange(8.0)
    weft.jit(lambda x, y: y + 1, donate_argnums=0)(unread, y := wnp.ones(8))
    assert not unread.is_deleted() and not y.is_deleted()


def test_a_donated_array_of_ones_own_is_written_in_place():
    f = weft.jit(lambda x: x + 1, donate_argnums=0)
    x = f(wnp.zeros(8))
    for _ in range(4):
        at = x._live().ptr
        x = f(x)
        assert x._live().ptr == at


def test_shardings_of_arguments_and_results():
    from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

    mesh = Mesh(np.array(weft.devices()[:8]).reshape(4, 2), ("a", "b"))
    rows = NamedSharding(mesh, P("a"))
    f = weft.jit(
        lambda x: x * 2, in_shardings=rows, out_shardings=NamedSharding(mesh, P(None, "b"))
    )
    out = f(np.ones((8, 4), np.float32))
    assert out.sharding.spec == P(None, "b")
    with mesh:
        g = weft.jit(lambda x: x * 2, in_shardings=P("a"), out_shardings=P("b"))
        assert g(np.ones((8, 4), np.float32)).sharding.spec == P("b")
    with pytest.raises(RuntimeError, match="needs a mesh"):
        weft.jit(lambda x: x, in_shardings=P("a"))(wnp.ones(8))
    with pytest.raises(ValueError, match="divi"):
        f(np.ones((6, 4), np.float32))
    moved = weft.device_put(wnp.ones((8, 4)), NamedSharding(mesh, P("b")))
    with pytest.raises(ValueError, match="does not match"):
        f(moved)


def test_disable_jit_runs_python():
    f, traces = counted(lambda x: x + 1)
    g = weft.jit(f)
    with weft.disable_jit():
        g(1.0), g(1.0)
    assert len(traces) == 2


def test_closures_over_traced_values():
    def f(x):
        return weft.jit(lambda y: x * y)(x) + weft.jit(lambda: x)()

    assert (
        float(f(3.0)) == 12.0
        and float(weft.grad(f)(3.0)) == 7.0
        and float(weft.jit(f)(3.0)) == 12.0
    )
    np.testing.assert_allclose(weft.vmap(f)(wnp.arange(3.0)), [0.0, 2.0, 6.0])


def test_constants_are_kept():
    big = wnp.arange(10.0)
    f = weft.jit(lambda x: x + big)
    for _ in range(3):
        np.testing.assert_allclose(f(wnp.ones(10)), np.arange(10.0) + 1)


def test_outputs_that_are_inputs_or_constants():
    x = wnp.arange(4.0)
    a, b, c, none = weft.jit(lambda x: (x, x, 3.0, None))(x)
    np.testing.assert_allclose(a, np.arange(4.0))
    np.testing.assert_allclose(b, np.arange(4.0))
    assert float(c) == 3.0 and none is None


@pytest.mark.parametrize("size", [0, 1, 5, 70])
def test_sizes(size):
    np.testing.assert_allclose(
        weft.jit(lambda x: (x * 2 + 1).sum())(wnp.arange(float(size))),
        np.sum(np.arange(size) * 2 + 1),
    )


# ---- tracer errors


@pytest.mark.parametrize(
    "f, error, words",
    [
        (lambda x: 1 if x > 0 else 2, "TracerBoolConversionError", "boolean"),
        (lambda x: int(x), "ConcretizationTypeError", "int"),
        (lambda x: float(x), "ConcretizationTypeError", "float"),
        (lambda x: wnp.zeros(x.astype(int)), "TracerIntegerConversionError", "integer"),
        (lambda x: np.sin(np.asarray(x)), "TracerArrayConversionError", "NumPy"),
        (lambda x: [1, 2, 3][x.astype(int)], "TracerIntegerConversionError", "integer"),
        (lambda x: int(x), "ConcretizationTypeError", r"x.astype\(int\)"),
        (
            lambda x: wnp.arange(3.0)[wnp.arange(3.0) > x],
            "NonConcreteBooleanIndexError",
            "concrete",
        ),
    ],
)
def test_tracer_errors_name_the_users_line(f, error, words):
    with pytest.raises(getattr(weft.errors, error), match=words) as info:
        weft.jit(f)(1.0)
    if error != "NonConcreteBooleanIndexError":
        assert "test_jit.py" in str(info.value)


def test_leaked_tracers_are_found():
    leaked = []
    weft.jit(lambda x: leaked.append(x) or x)(1.0)
    with pytest.raises(weft.errors.UnexpectedTracerError, match="after the transformation"):
        leaked[0] + 1
    with pytest.raises(weft.errors.UnexpectedTracerError):
        weft.jit(lambda x: x + leaked[0])(1.0)


def test_bad_arguments_and_results():
    with pytest.raises(TypeError, match="not a valid JAX type"):
        weft.jit(lambda x: x)("text")
    with pytest.raises(TypeError, match="not a valid JAX type"):
        weft.jit(lambda x: "text")(1.0)
    for fun in (3, classmethod(abs)):
        with pytest.raises(TypeError, match="Expected a callable value"):
            weft.jit(fun)
    with pytest.raises(TypeError, match="staticmethod arguments are not supported"):
        weft.jit(staticmethod(abs))


@pytest.mark.parametrize(
    "shape, use, error, words",
    [
        ((3,), operator.index, TypeError, "Only integer scalar arrays"),
        ((), operator.index, TypeError, "Only integer scalar arrays"),
        ((3,), float, TypeError, "Only scalar arrays"),
        ((1,), int, TypeError, "Only scalar arrays"),
        ((3,), bool, ValueError, "more than one element"),
        ((0,), bool, ValueError, "empty array"),
    ],
)
def test_arrays_that_are_no_number_say_so_whether_traced_or_not(shape, use, error, words):
    x = wnp.zeros(shape)
    for called in (use, weft.jit(use)):
        with pytest.raises(error, match=words):
            called(x)


def test_static_arguments_that_cannot_be_compared_are_named():
    class Odd:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            raise RuntimeError("no order")

    f = weft.jit(lambda x, y: x, static_argnums=1)
    f(1.0, Odd())
    with pytest.raises(ValueError, match=r"comparable using __eq__.*no order"):
        f(1.0, Odd())


def test_jit_repr_survives_a_failing_function_repr():
    class Silent:
        def __call__(self, x):
            return x

        def __repr__(self):
            raise ValueError("no name")

    assert repr(weft.jit(Silent())) == "<PjitFunction>"


# ---- stages


def test_stages_answer():
    f = weft.jit(lambda x, y: wnp.dot(x, y) + 1)
    x = wnp.ones((16, 16))
    traced = f.trace(x, x)
    assert traced.jaxpr.eqns[0].primitive.name == "dot_general" and traced.out_info.shape == (
        16,
        16,
    )
    lowered = f.lower(x, x)
    assert "stablehlo.dot_general" in lowered.as_text() and "tensor<16x16xf32>" in lowered.as_text()
    compiled = lowered.compile()
    assert "HloModule" in compiled.as_text() and "dot(" in compiled.as_text()
    assert compiled.cost_analysis()["flops"] >= 8192
    assert compiled.memory_analysis().argument_size_in_bytes == 2048
    np.testing.assert_allclose(compiled(x, x), 17.0)
    with pytest.raises(TypeError, match="compiled"):
        compiled(wnp.ones((3, 3)), x)
    structs = f.lower(
        weft.ShapeDtypeStruct((2, 2), "float32"), weft.ShapeDtypeStruct((2, 2), "float32")
    ).compile()
    np.testing.assert_allclose(structs(wnp.ones((2, 2)), wnp.ones((2, 2))), 3.0)
    assert weft.eval_shape(f, x, x).shape == (16, 16)


def test_make_jaxpr_reads_as_users_know():
    text = str(weft.make_jaxpr(lambda x, y: wnp.sum(wnp.sin(x * y)))(wnp.ones(3), wnp.ones(3)))
    assert (
        "c:f32[3] = mul a b" in text
        and "d:f32[3] = sin c" in text
        and "e:f32[] = reduce_sum[axes=(0,)" in text
    )


def test_log_compiles(caplog):
    with weft.log_compiles():
        weft.jit(lambda x: x * 17 - 2)(wnp.ones(3))
    assert any("Finished compilation" in r.message for r in caplog.records)


# ---- dispatch


@pytest.mark.parametrize(
    "args",
    [
        (wnp.ones(4),),
        ((wnp.ones(4), [wnp.ones(2), None]),),
        ({"b": wnp.ones(4), "a": (wnp.ones(1),)},),
        (wnp.ones(4), wnp.zeros(4)),
    ],
    ids=["array", "nested", "dict", "two"],
)
def test_repeated_calls_give_equal_trees(args):
    f = weft.jit(lambda *xs: {"out": weft.tree.map(lambda v: v + 1, xs), "first": [xs[0], None]})
    first = f(*args)
    for _ in range(5):
        again = f(*args)
        assert weft.tree.structure(again) == weft.tree.structure(first)
        for a, b in zip(weft.tree.leaves(first), weft.tree.leaves(again)):
            np.testing.assert_array_equal(a, b)
            assert a.sharding == b.sharding and a.aval == b.aval


def test_dispatch_sees_changed_settings_and_kinds():
    f = weft.jit(lambda x: x + 1)
    x = wnp.ones(4)
    f(x), f(x)
    assert f(wnp.ones(4, wnp.int32)).dtype == np.int32
    assert f(wnp.ones((2, 2))).shape == (2, 2)
    with weft.enable_x64():
        assert f(np.ones(4)).dtype == np.float64
    assert f(x).dtype == np.float32
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f(x)
    with pytest.raises(TypeError):
        f()


def test_results_outlive_their_arguments():
    f = weft.jit(lambda x: x * 2)
    x = wnp.arange(1000.0)
    for _ in range(50):
        x = f(x) * 0.5
    gc.collect()
    np.testing.assert_allclose(x, np.arange(1000.0))
    view = np.asarray(f(wnp.ones(1000)))
    gc.collect()
    np.testing.assert_allclose(view, 2.0)


def test_threads_may_call_at_once():
    f = weft.jit(lambda x: wnp.sin(x) + 1)
    x = wnp.arange(5000.0)
    want = np.asarray(f(x))
    errors = []

    def work():
        try:
            for _ in range(50):
                np.testing.assert_array_equal(f(x), want)
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert not errors


def test_methods_and_partials():
    class Model:
        @partial(weft.jit, static_argnums=0)
        def scale(self, x):
            return x * 3

    assert float(Model().scale(2.0)) == 6.0
    assert float(weft.jit(partial(lambda a, b: a - b, 5.0))(2.0)) == 3.0


@pytest.mark.parametrize(
    "transform", [weft.jit, weft.vmap, weft.make_jaxpr, lambda f: weft.jit(weft.grad(f))]
)
def test_tracers_do_not_pickle(transform):
    with pytest.raises(weft.errors.ConcretizationTypeError, match="by pickling"):
        transform(pickle.dumps)(np.ones(2, np.float32))
    with pytest.raises(
        weft.errors.ConcretizationTypeError,
        match=r"The tolist\(\) method was called on traced array",
    ):
        transform(lambda x: x.tolist())(np.ones(2, np.float32))


def test_arrays_pickle():
    x = weft.jit(lambda x: x + 1)(wnp.arange(3.0))
    again = pickle.loads(pickle.dumps(x))
    np.testing.assert_array_equal(again, x)
    assert again.aval == x.aval


@pytest.mark.parametrize("may_alias", [None, False])
def test_device_put_donates_or_copies_on_request(may_alias):
    x = wnp.arange(16.0) + 0
    at = x._live().ptr
    y = weft.device_put(x, weft.devices()[0], may_alias=may_alias)
    assert (y._live().ptr == at) == (may_alias is None) and not x.is_deleted()
    z = weft.device_put(x, weft.devices()[0], donate=True)
    assert x.is_deleted()
    np.testing.assert_array_equal(y, np.arange(16.0))
    np.testing.assert_array_equal(z, np.arange(16.0))


def test_a_donated_argument_that_is_moved_is_gone():
    mesh = weft.make_mesh((8,), ("x",))
    split, whole = weft.NamedSharding(mesh, weft.P("x")), weft.NamedSharding(mesh, weft.P())
    f = weft.jit(lambda x, y: x + y, donate_argnums=0, in_shardings=(split, None))
    for k in range(3):
        x, y = wnp.arange(8.0) + k, weft.device_put(wnp.ones(8), whole)
        np.testing.assert_array_equal(f(x, y), np.arange(8.0) + k + 1)
        assert x.is_deleted() and not y.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        x + 1
    x = wnp.arange(8.0) + 0
    np.testing.assert_array_equal(f(x, x), 2 * np.arange(8.0))  # read by the call that donates it
    assert x.is_deleted()


def test_a_compiled_function_is_not_compiled_again_by_calls(monkeypatch):
    from weft._engine import programs

    compiled = []
    work = programs.get_executable
    monkeypatch.setattr(
        programs,
        "get_executable",
        lambda *args, **kwargs: compiled.append(args[0].name) or work(*args, **kwargs),
    )
    x = wnp.arange(8.0)
    scale, traces = counted(lambda x, n: x * n)
    f = weft.jit(scale)
    first = f.lower(x, 2.0).compile()
    np.testing.assert_array_equal(f(x, 2.0), first(x, 2.0))
    f.lower(weft.ShapeDtypeStruct((8,), "float32"), 3.0).compile()
    assert len(traces) == 1 and compiled == ["jit(wrapped)"]
    mesh = weft.make_mesh((8,), ("x",))
    g = weft.jit(lambda x: x + 1, in_shardings=weft.NamedSharding(mesh, weft.P("x")))
    g.lower(x).compile()
    g(x)
    assert len(compiled) == 2


def test_results_without_bytes_are_of_numpy():
    f = weft.jit(
        lambda x, n: (weft.grad(lambda x, n: x * 2.0 + n, argnums=(0, 1), allow_int=True)(x, n), x)
    )
    for _ in range(3):
        (slope, none), x = f(3.0, 4)
        assert float(slope) == 2.0 and float(x) == 3.0
        assert type(none) is np.ndarray and none.dtype == weft.float0 and none.shape == ()


def test_one_device_keeps_the_name_of_its_mesh():
    mesh = weft.make_mesh((1,), ("data",), devices=weft.devices()[:1])
    rows = NamedSharding(mesh, P("data", None))
    x = weft.device_put(np.ones((4, 2), np.float32), rows)
    double = weft.jit(lambda x: x * 2)
    assert double(x).sharding == rows and double(x).committed
    assert weft.jit(lambda x: x.sum())(x).sharding == NamedSharding(mesh, P())
    assert weft.lax.with_sharding_constraint(wnp.ones((4, 2)), rows).sharding == rows
    with weft.set_mesh(mesh):
        abstract = NamedSharding(weft.sharding.get_abstract_mesh(), P("data", None))
        assert weft.lax.with_sharding_constraint(wnp.ones((4, 2)), abstract).sharding == rows
    assert isinstance(double(wnp.ones(3)).sharding, weft.sharding.SingleDeviceSharding)


def test_a_donated_argument_goes_to_a_result_of_its_type():
    f = weft.jit(lambda x, n: (n + 1, x + 1), donate_argnums=0)
    x = wnp.zeros(())
    memory = x.unsafe_buffer_pointer()
    n, y = f(x, 3)
    assert y.unsafe_buffer_pointer() == memory and x.is_deleted() and (int(n), float(y)) == (4, 1.0)


def test_the_deprecated_device_moves_committed_arguments():
    first, second = weft.devices()[2:4]
    with pytest.warns(DeprecationWarning, match="device is deprecated"):
        f = weft.jit(lambda a, b: a + b, device=weft.devices()[1])
    for _ in range(2):
        out = f(weft.device_put(wnp.ones(2), first), weft.device_put(wnp.ones(2), second))
        assert out.committed and out.devices() == {weft.devices()[1]} and out.tolist() == [2, 2]


def plus(x, n):
    return x + n


def test_state_of_a_jitted_function():
    f = weft.jit(plus, static_argnums=1, keep_unused=True)
    state = f.__getstate__()
    assert (state["function_name"], state["static_argnums"], state["keep_unused"]) == (
        "plus",
        (1,),
        True,
    )
    for again in (copy.copy(f), copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        assert again(1.0, 2).item() == 3.0 and again.lower(1.0, 2).args_info is not None
        assert again.__getstate__() == state
    assert (
        pickle.loads(pickle.dumps(wnp.sin))(0.0).item() == 0.0
        and copy.deepcopy(wnp.linalg.norm)(np.array([3.0, 4.0])).item() == 5.0
    )


def test_names_of_partial_functions():
    inner = partial(plus, n=1)
    assert weft.jit(partial(inner)).__getstate__()["function_name"] == "plus"
    inner.__name__ = "plus_one"
    assert (
        weft.jit(inner).__getstate__()["function_name"] == "plus_one"
        and float(weft.jit(partial(inner))(1.0)) == 2.0
    )


@weft.tree_util.register_pytree_node_class
class Checked:
    """A node that accepts only arrays with as many dims as it has names."""

    def __init__(self, names, data):
        assert len(names) == data.ndim
        self.names, self.data = names, data

    def tree_flatten(self):
        return (self.data,), self.names

    @classmethod
    def tree_unflatten(cls, names, children):
        return cls(names, *children)


def test_nodes_that_check_their_children():
    f = weft.jit(lambda x: Checked(x.names, x.data * 2))
    assert f(Checked(("a",), wnp.ones(3))).data.tolist() == [2.0] * 3
    assert (
        float(weft.jit(weft.grad(lambda x: (x.data**2).sum()))(Checked((), wnp.float32(3.0))).data)
        == 6.0
    )


def test_copy_to_host_async_passes_errors_of_the_method():
    class Broken:
        def copy_to_host_async(self):
            raise AttributeError("no buffer")

    assert weft.copy_to_host_async([1, "a"]) == [1, "a"]
    with pytest.raises(AttributeError, match=r"^no buffer$"):
        weft.copy_to_host_async({"a": Broken()})


def test_names_of_jitted_functions_that_libraries_use():
    def double(x):
        return 2 * x

    jitted = weft.jit(double)
    assert jitted._fun is jitted.__wrapped__ is double
    assert float(weft.grad(jitted._fun)(3.0)) == 2
    jitted(1.0)
    assert jitted._cache_size() == 1
    jitted._clear_cache()
    assert jitted._cache_size() == 0
