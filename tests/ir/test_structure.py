"""The bytes of a program: equal for equal programs, different for every difference that affects
compilation."""

from __future__ import annotations

import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.core.primitive import ElementwiseOp
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.program_structure import Unserializable, serialize_structure
from weft._engine.runtime.device import devices
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

X = weft.ShapeDtypeStruct((4, 6), "float32")


def traced(f, *avals) -> Jaxpr:
    return weft.jit(f).trace(*(avals or (X,))).jaxpr


def mesh(*sizes: int, names="ab", **options) -> Mesh:
    count = int(np.prod(sizes))
    return Mesh(np.array(devices()[:count]).reshape(sizes), tuple(names[: len(sizes)]), **options)


def constrained(spec, **options):
    sharding = NamedSharding(mesh(2, 2, **options), spec)
    return lambda x: lax.with_sharding_constraint(x, sharding) * 2


def scanned(body, length=3, **options):
    return lambda x: lax.scan(lambda c, _: (body(c), None), x, None, length=length, **options)[0]


def named(f, name: str):
    f.__name__ = name
    return f


def with_constant(*values):
    inner = weft.jit(lambda x: x * np.array(values, np.float32))
    return lambda x: lax.cond(x[0, 0] > 0, lambda x: inner(x[:, :2]), lambda x: x[:, :2], x)


#: pairs that differ in one property
DIFFERENT = {
    "operation": (wnp.sin, wnp.cos),
    "parameter": (lambda x: x.sum(0), lambda x: x.sum(1)),
    "one parameter more": (lambda x: x.sum(0), lambda x: x.sum((0, 1))),
    "literal": (lambda x: x * 2.0, lambda x: x * 3.0),
    "sign of zero": (lambda x: x + 0.0, lambda x: x + -0.0),
    "type of a literal": (
        lambda x: x.astype("int32") * 2,
        lambda x: x.astype("int32") * np.uint8(2),
    ),
    "bits of a NaN": (
        lambda x: x + np.array(0x7FC00000, np.uint32).view(np.float32),
        lambda x: x + np.array(0x7FC00001, np.uint32).view(np.float32),
    ),
    "order of operands": (lambda x: x - x.T.T * 2, lambda x: x.T.T * 2 - x),
    "order of equations": (
        lambda x: [wnp.sin(x), wnp.cos(x)],
        lambda x: [wnp.sin(x), wnp.cos(x)][::-1],
    ),
    "which variable": (
        lambda x: wnp.sin(x) + wnp.sin(wnp.sin(x)),
        lambda x: wnp.sin(x) + wnp.sin(x),
    ),
    "which result": (lambda x: [x, x + 1], lambda x: [x + 1, x]),
    "number of results": (lambda x: [x + 1], lambda x: [x + 1, x + 1]),
    "what is inside": (scanned(wnp.sin), scanned(wnp.cos)),
    "how often": (scanned(wnp.sin), scanned(wnp.sin, length=4)),
    "direction": (scanned(wnp.sin), scanned(wnp.sin, reverse=True)),
    "branches": (
        lambda x: lax.cond(True, wnp.sin, wnp.cos, x),
        lambda x: lax.cond(True, wnp.cos, wnp.sin, x),
    ),
    "constant of a program inside": (with_constant(1, 2), with_constant(1, 3)),
    "axis of a constraint": (constrained(P("a")), constrained(P("b"))),
    "dim of a constraint": (constrained(P("a")), constrained(P(None, "a"))),
    "axes together": (constrained(P(("a", "b"))), constrained(P(("b", "a")))),
    "names of axes": (constrained(P(), names="ab"), constrained(P(), names="ac")),
    "types of axes": (
        constrained(P()),
        constrained(P(), axis_types=(AxisType.Auto, AxisType.Explicit)),
    ),
    "left open": (constrained(P()), constrained(P(P.UNCONSTRAINED))),
    "call": (lambda x: wnp.sin(x), lambda x: weft.jit(wnp.sin)(x)),
    "inner dtype": (lambda x: x.astype("float16") * 2, lambda x: x.astype("bfloat16") * 2),
    "precision": (lambda x: lax.dot(x, x.T), lambda x: lax.dot(x, x.T, precision="highest")),
    "mode": (lambda x: x.at[9].get(mode="clip"), lambda x: x.at[9].get(mode="fill")),
    "checkpoint": (weft.checkpoint(wnp.sin), wnp.sin),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_has_other_bytes(case):
    one, other = DIFFERENT[case]
    assert serialize_structure(traced(one)) != serialize_structure(traced(other))
    assert serialize_structure(traced(one)) == serialize_structure(traced(one))


@pytest.mark.parametrize(
    "aval",
    [
        weft.ShapeDtypeStruct((4, 6), "float16"),
        weft.ShapeDtypeStruct((4, 6), "bfloat16"),
        weft.ShapeDtypeStruct((4, 7), "float32"),
        weft.ShapeDtypeStruct((24,), "float32"),
        weft.ShapeDtypeStruct((4, 6), "float32", weak_type=True),
        weft.ShapeDtypeStruct((4, 6), "int32"),
    ],
    ids=str,
)
def test_types_of_inputs_differ(aval):
    assert serialize_structure(traced(lambda x: x * 2, aval)) != serialize_structure(
        traced(lambda x: x * 2, X)
    )


def test_names_and_lines_do_not_matter():
    one, other = named(lambda x: wnp.sin(x) * 2, "one"), named(lambda y: wnp.sin(y) * 2, "other")
    assert serialize_structure(traced(one)) == serialize_structure(traced(other))


VALUES = [
    0,
    1,
    False,
    True,
    0.0,
    -0.0,
    1.0,
    1j,
    None,
    "",
    "0",
    b"",
    b"0",
    (),
    (0,),
    ((0,),),
    (0, 0),
    [],
    [0],
    ("list", 0),
    frozenset(),
    frozenset({0}),
    frozenset({"0"}),
    {},
    {0: 1},
    {1: 0},
    float("nan"),
    np.float32(0),
    np.float64(0),
    np.int32(0),
    np.bool_(0),
    ml_dtypes.bfloat16(0),
    np.dtype("float32"),
    np.dtype("float64"),
    np.dtype(ml_dtypes.bfloat16),
    np.dtype(">f4"),
    np.zeros(2, np.float32),
    np.zeros((2, 1), np.float32),
    np.zeros(2, np.int32),
    np.ones(2, np.float32),
    np.zeros((1, 2), np.float32),
    lax.GatherScatterMode.CLIP,
    lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    P(),
    P("a"),
    P("b"),
    P(None, "a"),
    P(("a", "b")),
    NamedSharding(mesh(2), P("a")),
    NamedSharding(mesh(2), P()),
    NamedSharding(mesh(4), P("a")),
    NamedSharding(mesh(2, 2), P("a")),
    NamedSharding(mesh(2), P("a"), memory_kind="pinned_host"),
    NamedSharding(mesh(2).abstract_mesh, P("a")),
    NamedSharding(Mesh(np.array(devices()[1::-1]), ("a",)), P("a")),
    *(weft.sharding.SingleDeviceSharding(d) for d in devices()[:2]),
    *devices()[:2],
    mesh(2),
    mesh(2).abstract_mesh,
]


def test_all_values_differ():
    written = [serialize_structure(value) for value in VALUES]
    assert len(set(written)) == len(VALUES)
    assert written == [serialize_structure(value) for value in VALUES]


def test_parts_do_not_run_together():
    assert (
        serialize_structure((1, 2), 3)
        != serialize_structure((1,), 2, 3)
        != serialize_structure(1, 2, 3)
    )
    assert serialize_structure("a", "b") != serialize_structure("ab", "")


def test_arrays_count_by_content_not_by_layout():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (
        serialize_structure(x)
        == serialize_structure(np.asfortranarray(x))
        != serialize_structure(x.T)
    )


class Sub(int):
    """A subclass of int: equal to an int of the same value, but another type."""


@pytest.mark.parametrize(
    "value",
    [
        len,
        lambda x: x,
        object(),
        Sub(1),
        slice(0, 1),
        np.array([object()]),
        {1: len},
        (1, (len,)),
        P,
        set(),
        bytearray(b"a"),
        iter(()),
        type("Named", (tuple,), {})((1,)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_told_apart_is_refused(value):
    with pytest.raises(Unserializable):
        serialize_structure(value)


REFUSED = {
    "callback": lambda x: weft.pure_callback(np.sin, X, x),
    "print": lambda x: (weft.debug.print("{}", x), x)[1],
    "look": lambda x: (weft.debug.inspect_array_sharding(x, callback=print), x)[1],
    "inside": scanned(lambda x: weft.pure_callback(np.sin, X, x)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_programs_that_call_python_are_refused(case):
    with pytest.raises(Unserializable):
        serialize_structure(traced(REFUSED[case]))


def test_operations_of_others_are_refused():
    mine = ElementwiseOp("structure_test", register=False)
    mine.define(type=lambda x: x, reference=lambda x: x)
    with pytest.raises(Unserializable, match="structure_test"):
        serialize_structure(traced(mine.bind))


def test_an_operation_with_a_foreign_rule_is_refused(monkeypatch):
    jaxpr = traced(wnp.sin)
    serialize_structure(jaxpr)
    monkeypatch.setattr(jaxpr.eqns[-1].primitive, "lower", lambda *args: args)
    with pytest.raises(Unserializable, match="sin"):
        serialize_structure(jaxpr)


@weft.custom_jvp
def doubled(x):
    return x * 2


doubled.defjvp(lambda primals, tangents: (doubled(*primals), tangents[0] * 2))


def test_unread_derivative_rules_do_not_change_structure():
    assert serialize_structure(traced(doubled)) == serialize_structure(traced(doubled))
    assert serialize_structure(traced(weft.nn.relu)) and serialize_structure(
        traced(lambda x: weft.nn.logsumexp(x))
    )
    policy = weft.checkpoint_policies.dots_saveable
    assert serialize_structure(
        traced(weft.grad(lambda x: weft.checkpoint(wnp.sin, policy=policy)(x).sum()))
    )


SCRIPT = """
import hashlib, weft, weft.numpy as wnp, numpy as np
from weft._engine.ir.program_structure import serialize_structure
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(weft.devices()).reshape(2, 4), ("left", "right"))
place = NamedSharding(mesh, P("left", "right"))
f = lambda x: weft.shard_map(lambda x: weft.lax.psum(x, ("left", "right")), mesh=mesh, in_specs=P("left", "right"), out_specs=P())(x)
g = lambda x: weft.nn.softmax(weft.lax.with_sharding_constraint(x, place) @ x.T) * 2.5 + f(x).sum()
data = serialize_structure(weft.jit(weft.grad(lambda x: g(x).sum())).trace(wnp.ones((8, 8))).jaxpr, frozenset({"a", "b", "c"}), place)
print(hashlib.sha256(data).hexdigest())
"""


def test_bytes_do_not_depend_on_the_process():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert len(outputs) == 1
