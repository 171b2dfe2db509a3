"""Error messages: the class of each error, the facts it names, the user's line, and the fix."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import lax, numpy as wnp, random
from weft.errors import (
    ConcretizationTypeError,
    NonConcreteBooleanIndexError,
    ShapeError,
    ShardingError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P, PositionalSharding

DEVICES = weft.devices()
MESH = Mesh(np.array(DEVICES).reshape(4, 2), ("data", "model"))
jit = weft.jit


def split(*spec) -> NamedSharding:
    return NamedSharding(MESH, P(*spec))


def vector():
    return wnp.arange(8.0)


def put(x, *spec):
    return weft.device_put(x, split(*spec))


def on(number: int, x=1.0):
    return weft.device_put(x, DEVICES[number])


def raises(kind: type, words, use) -> str:
    """Assert that `use()` raises `kind` with a message that contains all of `words`."""
    with pytest.raises(kind) as caught:
        use()
    text = str(caught.value)
    for word in words:
        assert word in text, f"{word!r} is not in:\n{text}"
    return text


# ---- traced values where Python needs concrete values

HERE = "at test_errors.py:"
TRACED = [
    (
        "if",
        TracerBoolConversionError,
        ["bool[]", "as a boolean", "lax.cond", "static_argnums"],
        lambda v: 1 if v.sum() > 0 else 2,
    ),
    ("and", TracerBoolConversionError, ["as a boolean"], lambda v: (v.sum() > 0) and 1),
    ("float", ConcretizationTypeError, ["float32[]", "float(...)"], lambda v: float(v.sum())),
    ("int", ConcretizationTypeError, ["int(...)"], lambda v: int(v.sum())),
    ("complex", ConcretizationTypeError, ["complex(...)"], lambda v: complex(v.sum())),
    ("item", ConcretizationTypeError, [".item()"], lambda v: v.sum().item()),
    ("tolist", ConcretizationTypeError, [".tolist()"], lambda v: v.tolist()),
    (
        "list index",
        TracerIntegerConversionError,
        ["index or size", "static_argnums"],
        lambda v: [1, 2, 3][v[0].astype(int)],
    ),
    (
        "range",
        TracerIntegerConversionError,
        ["index or size"],
        lambda v: list(range(v[0].astype(int))),
    ),
    (
        "shape",
        TracerIntegerConversionError,
        ["Shapes must be 1D sequences of concrete values", "static_argnums"],
        lambda v: wnp.zeros(v[0].astype(int)),
    ),
    (
        "reshape",
        TracerIntegerConversionError,
        ["Shapes must be 1D sequences of concrete values", "the shape of an argument"],
        lambda v: v.reshape(v[0].astype(int), -1),
    ),
    ("numpy", TracerArrayConversionError, ["float32[8]", "weft.numpy"], np.sin),
    ("asarray", TracerArrayConversionError, ["float32[8]", "pure_callback"], np.asarray),
    ("mask", NonConcreteBooleanIndexError, ["bool[8]", "where(mask, x, y)"], lambda v: v[v > 1]),
    ("nonzero", ConcretizationTypeError, ["nonzero", "size="], lambda v: wnp.nonzero(v)),
    ("unique", ConcretizationTypeError, ["unique", "size="], lambda v: wnp.unique(v)),
    (
        "slice",
        IndexError,
        ["static start/stop/step", "lax.dynamic_slice"],
        lambda v: v[: v[0].astype(int)],
    ),
]


@pytest.mark.parametrize(
    "words, kind, use", [pytest.param(w, k, u, id=name) for name, k, w, u in TRACED]
)
def test_a_traced_value_has_no_value(words, kind, use):
    raises(kind, [*words, HERE], lambda: jit(lambda v: use(v))(vector()))
    if kind is not IndexError:
        assert issubclass(kind, TypeError)


def test_the_line_that_made_the_value_is_named():
    def positive(v):
        total = v.sum()
        return 1 if total else 2

    text = raises(
        TracerBoolConversionError,
        ["The value was created at", "total = v.sum()"],
        lambda: jit(positive)(vector()),
    )
    assert "return 1 if total else 2" in text.partition("The value was created")[0]


def test_values_under_vmap_have_no_value_either():
    raises(
        TracerBoolConversionError,
        ["under vmap", "bool[]", HERE],
        lambda: weft.vmap(lambda v: 1 if v > 0 else 2)(vector()),
    )


def test_values_under_grad_do():
    assert weft.grad(lambda v: v * 2 if v > 0 else v)(1.0) == 2


@pytest.mark.parametrize(
    "transform",
    [jit, lambda f: weft.grad(lambda v: f(v).sum()), weft.vmap],
    ids=["jit", "grad", "vmap"],
)
def test_leaked_values_are_caught(transform):
    leaked = []

    def leaky(v):
        leaked.append(v * 2)
        return v

    transform(leaky)(vector())
    raises(
        UnexpectedTracerError,
        ["after the transformation that created it had ended", HERE, "through its return value"],
        lambda: leaked[0] + 1,
    )
    raises(UnexpectedTracerError, ["had ended"], lambda: jit(lambda z: z + leaked[0])(vector()))


def test_a_leaked_value_tells_where_it_was_made():
    leaked = []
    jit(lambda v: leaked.append(v * 2))(vector())
    raises(
        UnexpectedTracerError,
        ["It was created on line test_errors.py", "leaked.append(v * 2)"],
        lambda: leaked[0] + 1,
    )


def test_traced_values_are_immutable_and_have_no_hash():
    raises(
        TypeError,
        ["immutable", "x.at[index].set"],
        lambda: jit(lambda v: v.__setitem__(0, 1))(vector()),
    )
    raises(TypeError, ["unhashable type"], lambda: jit(lambda v: {v: 1})(vector()))


# ---- jit


@pytest.mark.parametrize(
    "words, kind, use",
    [
        (
            ["argument v of type <class 'str'>", "'a'", "static_argnums"],
            TypeError,
            lambda: jit(lambda v: v)("a"),
        ),
        (["v['k'][0]"], TypeError, lambda: jit(lambda v: v)({"k": ["a"]})),
        (["returned a value of type <class 'str'>"], TypeError, lambda: jit(lambda v: "a")(1)),
        (
            ["static arguments are not supported: b of", "not hashable", "[2]", "tuple"],
            ValueError,
            lambda: jit(lambda a, b: a, static_argnums=1)(1, [2]),
        ),
        (
            ["'c'", "static_argnames", "('a', 'b')"],
            ValueError,
            lambda: jit(lambda a, b: a, static_argnames="c")(1, 2),
        ),
        (["'c'", "donate_argnames"], ValueError, lambda: jit(lambda a, b: a, donate_argnames="c")),
        (
            ["3", "static_argnums", "1 positional"],
            ValueError,
            lambda: jit(lambda a: a, static_argnums=3)(1),
        ),
        (
            ["cannot intersect", "both static and donated"],
            ValueError,
            lambda: jit(lambda a: a, static_argnums=0, donate_argnums=0),
        ),
        (["callable", "3"], TypeError, lambda: jit(3)),
        (
            ["missing 1 required positional argument: 'b'"],
            TypeError,
            lambda: jit(lambda a, b: a)(1),
        ),
        (
            ["Argument 'v' compiled with float32[8] and called with float32[3]"],
            TypeError,
            lambda: jit(lambda v: v).lower(vector()).compile()(wnp.ones(3)),
        ),
        (
            ["deleted", "float32[8]", "donate_argnums"],
            RuntimeError,
            lambda: (lambda v: (jit(lambda a: a + 1, donate_argnums=0)(v), v + 1))(vector() + 0),
        ),
    ],
    ids=[
        "string",
        "in a tree",
        "result",
        "unhashable",
        "static name",
        "donated name",
        "static number",
        "both",
        "no function",
        "missing",
        "compiled",
        "donated",
    ],
)
def test_jit(words, kind, use):
    raises(kind, words, use)


# ---- derivatives and vmap


@pytest.mark.parametrize(
    "words, kind, use",
    [
        (["int32", "argument v", "allow_int"], TypeError, lambda: weft.grad(lambda v: v * 2)(3)),
        (
            ["scalar-output", "(8,)", "jacrev"],
            TypeError,
            lambda: weft.grad(lambda v: v * 2)(vector()),
        ),
        (
            ["real-valued", "complex64", "holomorphic"],
            TypeError,
            lambda: weft.grad(lambda v: v * (1 + 1j))(2.0),
        ),
        (["argnums=2", "1 positional"], TypeError, lambda: weft.grad(lambda v: v, argnums=2)(2.0)),
        (["scalar-output", "has_aux"], TypeError, lambda: weft.grad(lambda v: (v, v))(2.0)),
        (
            ["tangent", "float32[3]", "float32[4]"],
            TypeError,
            lambda: weft.jvp(lambda v: v, (wnp.ones(3),), (wnp.ones(4),)),
        ),
        (
            ["cotangent", "float32[4]", "float32[3]"],
            ValueError,
            lambda: weft.vjp(lambda v: v, wnp.ones(3))[1](wnp.ones(4)),
        ),
        (
            ["cotangent", "structure"],
            ValueError,
            lambda: weft.vjp(lambda v: (v, v), wnp.ones(3))[1](wnp.ones(3)),
        ),
        (
            ["No JVP defined", "defjvp"],
            AttributeError,
            lambda: weft.grad(weft.custom_jvp(lambda v: v))(1.0),
        ),
        (
            ["inconsistent sizes", "size 3", "size 4", "argument b"],
            ValueError,
            lambda: weft.vmap(lambda a, b: a + b)(wnp.ones(3), wnp.ones(4)),
        ),
        (
            ["in_axes", "len(in_axes)=1, len(args)=2"],
            ValueError,
            lambda: weft.vmap(lambda a, b: a, in_axes=(0,))(wnp.ones(3), wnp.ones(3)),
        ),
        (
            ["axis 1", "at least 2", "(3,)"],
            ValueError,
            lambda: weft.vmap(lambda a: a, in_axes=1)(wnp.ones(3)),
        ),
        (
            ["at least one non-None value in in_axes", "axis_size"],
            ValueError,
            lambda: weft.vmap(lambda a: a, in_axes=None)(wnp.ones(3)),
        ),
        (
            ["out_axes is None", "float32[3]"],
            ValueError,
            lambda: weft.vmap(lambda a: a, out_axes=None)(wnp.ones(3)),
        ),
        (
            ["unbound axis name: i", "axis_name"],
            NameError,
            lambda: jit(lambda v: lax.psum(v, "i"))(vector()),
        ),
    ],
    ids=[
        "int",
        "vector",
        "complex",
        "argnums",
        "tuple",
        "jvp",
        "vjp shape",
        "vjp tree",
        "custom_jvp",
        "sizes",
        "in_axes",
        "rank",
        "unmapped",
        "out_axes",
        "psum",
    ],
)
def test_transformations(words, kind, use):
    raises(kind, words, use)


# ---- shapes and types, with the line


@pytest.mark.parametrize(
    "words, kind, use",
    [
        (["add", "(3,)", "(4,)", HERE], ShapeError, lambda: wnp.ones(3) + wnp.ones(4)),
        (
            ["add", "(3,)", "(4,)", HERE],
            ShapeError,
            lambda: jit(lambda a, b: a + b)(wnp.ones(3), wnp.ones(4)),
        ),
        (
            ["lhs", "[2,3]", "size 3", "[4,5]", "size 4", HERE],
            ShapeError,
            lambda: wnp.ones((2, 3)) @ wnp.ones((4, 5)),
        ),
        (
            ["concatenate", "float32[2,2]", HERE],
            ShapeError,
            lambda: wnp.concatenate([wnp.ones(3), wnp.ones((2, 2))]),
        ),
        (["reshape", "size 8", "size 3", HERE], ShapeError, lambda: lax.reshape(vector(), (3,))),
        (
            ["index 'j'", "size 3", "4"],
            ValueError,
            lambda: wnp.einsum("ij,kj->ik", wnp.ones((2, 3)), wnp.ones((2, 4))),
        ),
        (["sum", "axis 3", "dimension 1"], ValueError, lambda: wnp.sum(vector(), axis=3)),
        (
            ["add", "float32[3]", "int32[3]", ".astype", HERE],
            TypeError,
            lambda: lax.add(wnp.ones(3), wnp.arange(3)),
        ),
        (["random.normal", "key"], TypeError, lambda: random.normal(3.0)),
    ],
    ids=["eager", "jit", "matmul", "concatenate", "reshape", "einsum", "axis", "dtypes", "key"],
)
def test_operations(words, kind, use):
    raises(kind, words, use)


# ---- meshes, specs and shardings

EVEN = ["size 50", "'data' of size 4", "not divisible by 4", "Pad dim 0 to 52", HERE]


@pytest.mark.parametrize(
    "words, use",
    [
        (
            ["value ['w']['q']", "device_put", "[50, 4]", *EVEN],
            lambda: put({"w": {"q": wnp.ones((50, 4))}}, "data"),
        ),
        (
            ["argument params['wq'] of jit(step)", *EVEN],
            lambda: _step(wnp.ones((50, 4)), in_shardings=(split("data"),)),
        ),
        (
            ["the result ['wq'] of jit(step)", *EVEN],
            lambda: _step(wnp.ones((50, 4)), out_shardings=split("data")),
        ),
        (
            ["with_sharding_constraint", *EVEN],
            lambda: lax.with_sharding_constraint(wnp.ones(50), split("data")),
        ),
        (
            ["size 6", "splits it 4 ways", "Pad dim 0 to 8"],
            lambda: weft.device_put(wnp.ones((6, 6)), PositionalSharding(DEVICES).reshape(4, 2)),
        ),
        (
            ["size 12", "('data', 'model')", "not divisible by 8"],
            lambda: put(wnp.ones(12), ("data", "model")),
        ),
    ],
    ids=["device_put", "argument", "result", "eager constraint", "positional", "two axes"],
)
def test_dims_that_do_not_divide(words, use):
    text = raises(ShardingError, words, use)
    assert isinstance(ShardingError(text), ValueError)


def _step(weights, **shardings):
    def step(params):
        return params

    return jit(step, **shardings)({"wq": weights})


@pytest.mark.parametrize(
    "words, use",
    [
        (
            ["argument v of jit", "rank at least 2", "rank 1"],
            lambda: jit(lambda v: v, in_shardings=(split("data", "model"),))(vector()),
        ),
        (
            ["with_sharding_constraint", "rank at least 2"],
            lambda: lax.with_sharding_constraint(vector(), split("data", "model")),
        ),
        (["device_put", "rank at least 2"], lambda: put(vector(), "data", "model")),
        (
            ["device_put", "rank 2", "shape (4, 2)", "replicate"],
            lambda: weft.device_put(vector(), PositionalSharding(DEVICES).reshape(4, 2)),
        ),
    ],
    ids=["jit", "constraint", "device_put", "positional"],
)
def test_specs_longer_than_the_rank(words, use):
    raises(ShardingError, words, use)


@pytest.mark.parametrize(
    "words, use",
    [
        (["'rows'", "('data', 'model')"], lambda: split("rows")),
        (["duplicate", "'data'", "at most one dim"], lambda: split("data", "data")),
        (["duplicate", "'data'"], lambda: split(("data", "model"), "data")),
        (["rank 2", "('a',)", "(4, 2)"], lambda: Mesh(np.array(DEVICES).reshape(4, 2), ("a",))),
        (["('a', 'a')", "repeat"], lambda: Mesh(np.array(DEVICES).reshape(4, 2), ("a", "a"))),
        (["8", "(3, 3)", "WEFT_NUM_DEVICES=9"], lambda: weft.make_mesh((3, 3), ("a", "b"))),
        (["rank 1", "('a', 'b')"], lambda: weft.make_mesh((4,), ("a", "b"))),
    ],
    ids=[
        "unknown",
        "repeated",
        "repeated in a group",
        "names",
        "equal names",
        "too many",
        "make_mesh names",
    ],
)
def test_meshes_and_axis_names(words, use):
    raises(ShardingError, words, use)


@pytest.mark.parametrize(
    "words, kind, use",
    [
        (
            ["in_shardings", "prefix", "length 1", "length 2"],
            ValueError,
            lambda: jit(lambda a, b: a, in_shardings=(split(),))(vector(), vector()),
        ),
        (
            ["in_shardings", "prefix[0]", "'a'", "'b'"],
            ValueError,
            lambda: jit(lambda a: a, in_shardings=({"a": split()},))({"b": 1.0}),
        ),
        (
            ["out_shardings", "length 3", "length 2"],
            ValueError,
            lambda: jit(lambda a: (a, a), out_shardings=(split(), split(), split()))(vector()),
        ),
        (
            ["device_put", "prefix", "length 1", "length 2"],
            ValueError,
            lambda: weft.device_put([1.0, 2.0], [DEVICES[0]]),
        ),
        (
            ["device_put", "'a'", "'b'"],
            ValueError,
            lambda: weft.device_put({"a": 1.0}, {"b": DEVICES[0]}),
        ),
        (
            ["in_shardings", "P('data',)", "with mesh"],
            RuntimeError,
            lambda: jit(lambda a: a, in_shardings=P("data"))(vector()),
        ),
        (
            ["with_sharding_constraint", "with mesh", "NamedSharding"],
            RuntimeError,
            lambda: lax.with_sharding_constraint(vector(), P("data")),
        ),
        (["device_put", "with mesh"], RuntimeError, lambda: weft.device_put(vector(), P("data"))),
        (
            ["'data' is not a sharding"],
            TypeError,
            lambda: jit(lambda a: a, in_shardings="data")(vector()),
        ),
        (["'cpu' is not a sharding"], ValueError, lambda: weft.device_put(vector(), "cpu")),
    ],
    ids=[
        "too few",
        "other keys",
        "too many results",
        "device_put",
        "device_put keys",
        "spec in jit",
        "spec in a constraint",
        "spec in device_put",
        "string in jit",
        "string",
    ],
)
def test_trees_of_shardings(words, kind, use):
    raises(kind, words, use)


def reversed_mesh() -> Mesh:
    return Mesh(np.array(DEVICES)[::-1].reshape(4, 2), ("data", "model"))


@pytest.mark.parametrize(
    "words, use",
    [
        (["add", "device ids [0]", "device ids [1]"], lambda: on(0) + on(1)),
        (
            [
                "argument loss of <lambda>",
                "device ids [0] ",
                "argument w of <lambda>",
                "[0, 1, 2, 3, 4, 5, 6, 7]",
                "device_put",
            ],
            lambda: jit(lambda loss, w: loss * w)(on(0), put(vector(), "data")),
        ),
        (
            ["[0, 1, 2, 3, 4, 5, 6, 7]", "[7, 6, 5, 4, 3, 2, 1, 0]", "same order"],
            lambda: jit(lambda p, q: p + q)(
                put(vector(), "data"),
                weft.device_put(vector(), NamedSharding(reversed_mesh(), P("data"))),
            ),
        ),
        (
            ["argument p", "constraint", "device ids [0, 1, 2, 3]"],
            lambda: jit(
                lambda p: lax.with_sharding_constraint(
                    p, NamedSharding(Mesh(np.array(DEVICES[:4]), ("q",)), P("q"))
                )
            )(put(vector(), "data")),
        ),
    ],
    ids=["eager", "jit", "order", "constraint"],
)
def test_devices_that_disagree(words, use):
    raises(ValueError, ["incompatible devices", *words], use)


def test_a_committed_argument_is_not_moved_silently():
    raises(
        ValueError,
        ["argument a", "float32[8]", "P('data',)", "P('model',)", "device_put"],
        lambda: jit(lambda a: a, in_shardings=split("model"))(put(vector(), "data")),
    )


def test_messages_do_not_depend_on_the_state_of_the_cache():
    step = jit(lambda a, b: a + b)
    step(vector(), vector())
    for _ in range(2):
        raises(ShapeError, ["add", "(8,)", "(3,)"], lambda: step(vector(), wnp.ones(3)))
    assert step(vector(), vector())[1] == 2


SHAPES = {
    "broadcasting": lambda: wnp.ones(2) + wnp.ones(3),
    "matmul": lambda: wnp.ones((2, 3)) @ wnp.ones((2, 3)),
    "reshape": lambda: wnp.ones((2, 3)).reshape(-1, -1),
    "transpose": lambda: wnp.ones((2, 3)).transpose(0),
    "zeros": lambda: wnp.zeros(-1),
    "slice": lambda: weft.lax.slice(wnp.arange(5), (1,), (9,)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_do_not_fit_are_type_errors_and_value_errors(name):
    for kind in (TypeError, ValueError):
        with pytest.raises(kind):
            SHAPES[name]()


def test_an_axis_of_a_sort_is_one_number():
    with pytest.raises(TypeError):
        wnp.sort(wnp.ones((2, 3)), axis=(0, 1))


def test_aux_may_hold_what_is_no_array():
    held = object()
    grad, aux = weft.grad(lambda x: (x * x, {"name": "loss", "held": held, "x": x}), has_aux=True)(
        3.0
    )
    assert (
        float(grad) == 6.0
        and aux["name"] == "loss"
        and aux["held"] is held
        and float(aux["x"]) == 3.0
    )
    assert weft.jvp(lambda x: (x, "aux"), (2.0,), (1.0,), has_aux=True)[2] == "aux"


@pytest.mark.parametrize(
    "use",
    [
        lambda x, key: random.permutation(key, x, axis=2),
        lambda x, key: random.categorical(key, x, axis=-3),
        lambda x, key: random.choice(key, x, axis=2),
        lambda x, key: weft.nn.one_hot(x.astype("int32"), 3, axis=4),
        lambda x, key: wnp.linspace(0.0, 1.0, 4, axis=1),
        lambda x, key: wnp.diff(x, axis=2),
        lambda x, key: wnp.gradient(x, axis=2),
        lambda x, key: wnp.apply_along_axis(wnp.sum, 2, x),
        lambda x, key: wnp.linalg.norm(x, axis=(0, 2)),
        lambda x, key: lax.reduce(x, 0.0, lax.add, (2,)),
        lambda x, key: weft.scipy.stats.mode(x, axis=2),
        lambda x, key: weft.scipy.signal.fftconvolve(x, x, axes=2),
    ],
)
def test_an_axis_that_is_not_there_is_never_taken_for_another(use):
    with pytest.raises(ValueError, match="out of bounds"):
        use(wnp.ones((2, 3)), random.key(0))


@pytest.mark.parametrize(
    "use",
    [
        lambda: wnp.repeat(wnp.ones(3), -1),
        lambda: wnp.tile(wnp.ones(3), -1),
        lambda: wnp.broadcast_to(1.0, (-1,)),
        lambda: lax.iota(wnp.float32, -1),
        lambda: random.normal(random.key(0), (-1,)),
        lambda: weft.nn.one_hot(wnp.arange(3), -1),
    ],
)
def test_sizes_are_not_negative(use):
    with pytest.raises(ShapeError, match=r"negative|-1"):
        use()


@pytest.mark.parametrize("shape", [("a",), (2, 1.5), 2.0], ids=str)
def test_sizes_are_whole_numbers(shape):
    with pytest.raises(TypeError):
        wnp.zeros(shape)


def test_complex_values_are_not_clipped():
    with pytest.raises(ValueError, match="no order"):
        wnp.clip(wnp.ones(3), 1j, 2)


def test_cotangents_of_a_linear_function_have_its_shape():
    with pytest.raises(TypeError, match=r"float32\[2\]"):
        weft.linear_transpose(lambda x: 3.0 * x, 1.0)(wnp.ones(2))


def test_what_a_program_cannot_take_or_give_is_named():
    def gives(x):
        return 2.0, gives

    with pytest.raises(
        TypeError,
        match=r"function gives at .*test_errors\.py:\d+ traced for eval_shape.*at output component "
        r"\[1\].*not a valid JAX type",
    ):
        weft.eval_shape(gives, 1.0)
    with pytest.raises(
        OverflowError, match="An overflow was met in the argument whose argument path is big"
    ):
        jit(lambda big: big)(1 << 40)
    with pytest.raises(TypeError, match="Detected a BatchTracer"):
        weft.vmap(jit(lambda x: x).lower(1.0).compile())(wnp.ones(3))
    with pytest.raises(TypeError, match="cotangent type does not match"):
        weft.linear_transpose(lambda x: 1j * x, 1.0)(1.0)

    def asks(x):
        with pytest.raises(AttributeError, match="typeof"):
            x.sharding
        return x

    jit(asks)(1.0)
    weft.devices()
    with pytest.raises(RuntimeError, match="before backends are initialized"):
        weft.config.update("num_cpu_devices", 3)


def test_the_number_of_devices_in_use_may_be_set_again():
    count = weft.device_count("cpu")
    weft.config.update("num_cpu_devices", count)
    assert weft.config.num_cpu_devices == count == weft.device_count("cpu")
