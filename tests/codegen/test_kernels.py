"""Native kernels against the evaluator: every type, operation, remainder and way of indexing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import check, random_array, run_native
from weft._engine.codegen.kernel.kernel_emitter import module_ir
from weft._engine.codegen.toolchain.target import current
from weft._engine.ir.loops import (
    ARITHMETIC,
    COMPARISONS,
    COMPLEX,
    FLOATS,
    INTEGERS,
    ITEMSIZE,
    Accum,
    Buf,
    Const,
    For,
    If,
    Index,
    Init,
    Let,
    Load,
    LoopKind,
    LoopsKernel,
    Pack,
    Prefetch,
    ScalarOp,
    ScalarRef,
    StoreElement,
    While,
)

REAL = sorted(INTEGERS | FLOATS)
TYPES = [*REAL, "bool", *sorted(COMPLEX)]
i, j, k = Index("i"), Index("j"), Index("k")


def ix(value: int) -> Const:
    return Const(value, "i64")


def add(x, y):
    return ScalarOp("add", (x, y), x.type)


def mul(x, y):
    return ScalarOp("mul", (x, y), x.type)


def elementwise(op: str, types: list[str], result: str, size: int) -> LoopsKernel:
    bufs = [Buf(f"x{n}", type_, size) for n, type_ in enumerate(types)]
    value = ScalarOp(op, tuple(Load(buf.name, i, buf.type) for buf in bufs), result)
    return LoopsKernel(
        (*bufs, Buf("y", result, size, "out")),
        (For("i", size, (StoreElement("y", i, value),), LoopKind.VECTOR),),
    )


def arrays(kernel: LoopsKernel, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [random_array(rng, buf.type, buf.size) for buf in kernel.bufs]


_INT_ONLY = {"and", "or", "xor", "not", "shl", "shr_logical", "shr_arithmetic", "popcount", "clz"}
_ARITY = {"neg": 1, "abs": 1, "sign": 1, "not": 1, "popcount": 1, "clz": 1, "fma": 3}


@pytest.mark.parametrize(
    "op,type_",
    [
        (op, type_)
        for op in sorted(ARITHMETIC)
        for type_ in REAL
        if op not in _INT_ONLY or type_ in INTEGERS
    ],
)
def test_arithmetic(op, type_):
    kernel = elementwise(op, [type_] * _ARITY.get(op, 2), type_, 70)
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("op", ["and", "or", "xor", "not", "add", "mul", "min", "max"])
def test_bool_arithmetic(op):
    kernel = elementwise(op, ["bool"] * _ARITY.get(op, 2), "bool", 70)
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("type_", [*REAL, "bool"])
@pytest.mark.parametrize("op", sorted(COMPARISONS))
def test_comparisons(op, type_):
    kernel = elementwise(op, [type_, type_], "bool", 70)
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize(
    "source,target",
    [
        (source, target)
        for source in TYPES
        for target in TYPES
        if source not in COMPLEX or target in COMPLEX
    ],
)
def test_casts(source, target):
    kernel = elementwise("cast", [source], target, 37)
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("source", REAL)
def test_bitcasts(source):
    for target in REAL:
        if ITEMSIZE[source] == ITEMSIZE[target] and not (target in FLOATS and source not in FLOATS):
            kernel = elementwise("bitcast", [source], target, 37)
            data = arrays(kernel)
            if source in FLOATS:
                data[0] = np.nan_to_num(data[0].astype(np.float64), posinf=2, neginf=-2).astype(
                    data[0].dtype
                )
            check(kernel, *data)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "neg", "eq", "ne", "sign", "conj"])
@pytest.mark.parametrize("type_", sorted(COMPLEX))
def test_complex_arithmetic(op, type_):
    result = "bool" if op in COMPARISONS else type_
    kernel = elementwise(op, [type_] * (1 if op in ("neg", "sign", "conj") else 2), result, 37)
    check(
        kernel, *arrays(kernel), rtol=0 if op in COMPARISONS else 1e-5 if type_ == "c64" else 1e-14
    )


@pytest.mark.parametrize(
    "type_,size",
    [
        (type_, size)
        for type_ in TYPES
        for size in (*range(19), 31, 32, 33, 63, 64, 65, 70, 127, 200, 259)
        if size % 3 == 0 or type_ in ("f32", "f64", "bool", "i8")
    ],
)
def test_every_size(type_, size):
    kernel = elementwise("add", [type_, type_], type_, size)
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("size", [0, 1, 5, 16, 63, 64, 65, 200, 259])
@pytest.mark.parametrize("type_", ["f32", "bool", "f64", "u8"])
def test_computed_extent(type_, size):
    n = Load("n", ix(0), "i64")
    body = For(
        "i",
        n,
        (StoreElement("y", i, add(Load("x", i, type_), Load("x", i, type_))),),
        LoopKind.VECTOR,
    )
    kernel = LoopsKernel(
        (Buf("n", "i64", 1), Buf("x", type_, 300), Buf("y", type_, 300, "inout")), (body,)
    )
    data = arrays(kernel)
    data[0][:] = size
    check(kernel, *data)
    data[0][:] = -size
    check(kernel, *data)


_REDUCED = {
    "f32": "add mul min max",
    "f64": "add mul min max",
    "i32": "add mul min max and or xor",
    "u8": "add mul min max and or xor",
    "i64": "add mul min max and or xor",
    "bool": "add min max and or",
}


@pytest.mark.parametrize(
    "op,type_", [(op, type_) for type_, ops in _REDUCED.items() for op in ops.split()]
)
@pytest.mark.parametrize("size", [0, 3, 16, 70, 259])
def test_reductions(op, type_, size):
    first = Const(
        {"and": True if type_ == "bool" else -1, "mul": 1}.get(op, type_ == "bool" and op == "min"),
        type_,
    )
    kernel = LoopsKernel(
        (Buf("x", type_, size), Buf("y", type_, 2, "out")),
        (
            Init("s", first),
            For("i", size, (Accum("s", op, Load("x", i, type_)),), LoopKind.VECTOR),
            Init("t", first),
            For(
                "j",
                size,
                (Accum("t", op, Load("x", j, type_), ScalarOp("lt", (j, ix(11)), "bool")),),
                LoopKind.VECTOR,
            ),
            StoreElement("y", ix(0), ScalarRef("s", type_)),
            StoreElement("y", ix(1), ScalarRef("t", type_)),
        ),
    )
    data = arrays(kernel)
    if op in ("add", "mul") and type_ in FLOATS:
        data[0] = np.abs(np.nan_to_num(data[0], posinf=1, neginf=1)).astype(data[0].dtype) / 8 + 0.5
        check(kernel, *data, rtol=1e-5)
    else:
        check(kernel, *data)


def test_complex_sum():
    kernel = LoopsKernel(
        (Buf("x", "c64", 83), Buf("y", "c64", 1, "out")),
        (
            Init("s", Const(0j, "c64")),
            For("i", 83, (Accum("s", "add", Load("x", i, "c64")),), LoopKind.VECTOR),
            StoreElement("y", ix(0), ScalarRef("s", "c64")),
        ),
    )
    check(kernel, *arrays(kernel), rtol=1e-5)


@pytest.mark.parametrize("stride", [-3, -2, -1, 1, 2, 3, 7])
@pytest.mark.parametrize("type_", ["f32", "f64", "i8", "bool", "bf16", "c64"])
def test_strided_access(stride, type_):
    n = 37
    start = 0 if stride > 0 else -stride * (n - 1)
    at = add(mul(i, ix(stride)), ix(start))
    size = abs(stride) * (n - 1) + 1
    read = LoopsKernel(
        (Buf("x", type_, size), Buf("y", type_, n, "out")),
        (For("i", n, (StoreElement("y", i, Load("x", at, type_)),), LoopKind.VECTOR),),
    )
    check(read, *arrays(read))
    write = LoopsKernel(
        (Buf("x", type_, n), Buf("y", type_, size, "inout")),
        (For("i", n, (StoreElement("y", at, Load("x", i, type_)),), LoopKind.VECTOR),),
    )
    check(write, *arrays(write))


@pytest.mark.parametrize("type_", ["f32", "f64", "i16", "bool", "f16", "c128"])
@pytest.mark.parametrize("n", [7, 37, 130])
def test_gather_and_scatter(type_, n):
    rng = np.random.default_rng(1)
    where = rng.permutation(n).astype(np.int64)
    at = Load("w", i, "i64")
    gather = LoopsKernel(
        (Buf("x", type_, n), Buf("w", "i64", n), Buf("y", type_, n, "out")),
        (For("i", n, (StoreElement("y", i, Load("x", at, type_)),), LoopKind.VECTOR),),
    )
    data = arrays(gather)
    data[1] = where
    check(gather, *data)
    scatter = LoopsKernel(
        gather.bufs, (For("i", n, (StoreElement("y", at, Load("x", i, type_)),), LoopKind.VECTOR),)
    )
    check(scatter, *data)


def test_gather_through_i32():
    n = 53
    at = ScalarOp("cast", (Load("w", i, "i32"),), "i64")
    kernel = LoopsKernel(
        (Buf("x", "f32", n), Buf("w", "i32", n), Buf("y", "f32", n, "out")),
        (For("i", n, (StoreElement("y", i, Load("x", at, "f32")),), LoopKind.VECTOR),),
    )
    data = arrays(kernel)
    data[1] = np.random.default_rng(2).integers(0, n, n).astype(np.int32)
    check(kernel, *data)


@pytest.mark.parametrize("type_", ["f32", "i8", "f64", "c64"])
@pytest.mark.parametrize("n", [5, 48, 75])
def test_guarded_access(type_, n):
    low, high = 3, n - 1
    inside = ScalarOp(
        "and", (ScalarOp("ge", (i, ix(low)), "bool"), ScalarOp("lt", (i, ix(high)), "bool")), "bool"
    )
    shifted = ScalarOp("sub", (i, ix(low)), "i64")
    padded = Load("x", shifted, type_, inside, Const(2, type_))
    kernel = LoopsKernel(
        (Buf("x", type_, max(n - 4, 0)), Buf("y", type_, n, "inout")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, padded, ScalarOp("ne", (i, ix(4)), "bool")),),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


def test_guards_that_never_hold():
    never = ScalarOp("lt", (Load("n", ix(0), "i64"), ix(0)), "bool")
    for size in (0, 3):
        kernel = LoopsKernel(
            (Buf("n", "i64", 1), Buf("x", "f32", size), Buf("y", "f32", 20, "inout")),
            (
                For(
                    "i",
                    20,
                    (
                        StoreElement(
                            "y", i, Load("x", ix(1 << 20), "f32", never, Const(3.0, "f32"))
                        ),
                    ),
                    LoopKind.VECTOR,
                ),
                StoreElement("y", ix(1 << 20), Load("x", ix(1 << 30), "f32", never), never),
            ),
        )
        check(kernel, np.ones(1, np.int64), *arrays(kernel)[1:])


@pytest.mark.parametrize("type_", ["f32", "i8", "c64"])
@pytest.mark.parametrize("step", [1, -1])
def test_one_guard_for_all_lanes_leads_the_address_inside(type_, step):
    """Masked loads far outside a buffer would be correct but very slow."""
    n = 75
    holds = ScalarOp("lt", (Load("n", ix(0), "i64"), ix(5)), "bool")
    offset = ScalarOp("mul", (Load("n", ix(0), "i64"), ix(1 << 30)), "i64")
    at = add(offset, i) if step == 1 else add(offset, ScalarOp("sub", (ix(n - 1), i), "i64"))
    kernel = LoopsKernel(
        (Buf("n", "i64", 1), Buf("x", type_, n), Buf("y", type_, n, "out")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, Load("x", at, type_, holds, Const(2, type_))),),
                LoopKind.VECTOR,
            ),
        ),
    )
    for number in (0, 9):
        check(kernel, np.full(1, number, np.int64), *arrays(kernel)[1:])
    assert "select i1" in module_ir([(kernel, "inside")], current())


def test_rows_and_columns():
    """A nest as of softmax: two row reductions, then a write, in a parallel loop, with scratch."""
    rows, cols = 6, 45
    at = add(mul(i, ix(cols)), j)
    x = Load("x", at, "f32")
    body = (
        Init("m", Const(float("-inf"), "f32")),
        For("j", cols, (Accum("m", "max", x),), LoopKind.VECTOR),
        Init("s", Const(0.0, "f32")),
        For(
            "j",
            cols,
            (
                Let(
                    "e",
                    mul(ScalarOp("sub", (x, ScalarRef("m", "f32")), "f32"), Const(0.125, "f32")),
                ),
                StoreElement("tmp", j, ScalarRef("e", "f32")),
                Accum("s", "add", ScalarRef("e", "f32")),
            ),
            LoopKind.VECTOR,
        ),
        For(
            "j",
            cols,
            (
                StoreElement(
                    "y", at, ScalarOp("div", (Load("tmp", j, "f32"), ScalarRef("s", "f32")), "f32")
                ),
            ),
            LoopKind.VECTOR,
        ),
    )
    kernel = LoopsKernel(
        (Buf("x", "f32", rows * cols), Buf("y", "f32", rows * cols, "out")),
        (For("i", rows, body, LoopKind.PARALLEL),),
        (Buf("tmp", "f32", cols),),
    )
    data = [
        np.random.default_rng(3).normal(size=rows * cols).astype(np.float32),
        np.zeros(rows * cols, np.float32),
    ]
    check(kernel, *data, rtol=2e-5)


def test_large_scratch():
    n = 1 << 15
    kernel = LoopsKernel(
        (Buf("x", "f32", 40), Buf("y", "f32", 40, "out")),
        (
            For(
                "i",
                40,
                (StoreElement("t", add(i, ix(n - 40)), Load("x", i, "f32")),),
                LoopKind.VECTOR,
            ),
            For(
                "j",
                40,
                (StoreElement("y", j, Load("t", ScalarOp("sub", (ix(n - 1), j), "i64"), "f32")),),
                LoopKind.VECTOR,
            ),
        ),
        (Buf("t", "f32", n),),
    )
    check(kernel, *arrays(kernel))


def test_serial_reduction_inside_a_vector_loop():
    """Column sums: per-lane accumulators through an inner serial loop."""
    rows, cols = 9, 45
    kernel = LoopsKernel(
        (Buf("x", "f64", rows * cols), Buf("y", "f64", cols, "out")),
        (
            For(
                "j",
                cols,
                (
                    Init("s", Const(0.0, "f64")),
                    For(
                        "i", rows, (Accum("s", "add", Load("x", add(mul(i, ix(cols)), j), "f64")),)
                    ),
                    StoreElement("y", j, ScalarRef("s", "f64")),
                ),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


def test_reduction_over_a_serial_loop_in_a_vector_loop():
    rows, cols = 9, 45
    kernel = LoopsKernel(
        (Buf("x", "i32", rows * cols), Buf("y", "i32", 1, "out")),
        (
            Init("s", Const(0, "i32")),
            For(
                "j",
                cols,
                (For("i", rows, (Accum("s", "add", Load("x", add(mul(i, ix(cols)), j), "i32")),)),),
                LoopKind.VECTOR,
            ),
            StoreElement("y", ix(0), ScalarRef("s", "i32")),
        ),
    )
    check(kernel, *arrays(kernel))


def test_scan_in_a_vector_loop():
    rows, cols = 5, 37
    at = add(mul(i, ix(cols)), j)
    kernel = LoopsKernel(
        (Buf("x", "f32", rows * cols), Buf("y", "f32", rows * cols, "out")),
        (
            For(
                "j",
                cols,
                (
                    Init("s", Const(0.0, "f32")),
                    For(
                        "i",
                        rows,
                        (
                            Accum("s", "add", Load("x", at, "f32")),
                            StoreElement("y", at, ScalarRef("s", "f32")),
                        ),
                    ),
                ),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


def test_accumulating_stores():
    n = 37
    kernel = LoopsKernel(
        (Buf("x", "f32", n), Buf("w", "i64", n), Buf("y", "f32", n, "inout")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, Load("x", i, "f32"), accumulate="max"),),
                LoopKind.VECTOR,
            ),
            For(
                "k",
                n,
                (StoreElement("y", Load("w", k, "i64"), Load("x", k, "f32"), accumulate="add"),),
            ),
        ),
    )
    data = arrays(kernel)
    data[1] = np.random.default_rng(4).integers(0, n, n)
    check(kernel, *data)


def test_while_and_if():
    """Integer square roots by counting, with branches that change accumulators."""
    body = (
        Init("r", Const(0, "i32")),
        Init("even", Const(0, "i32")),
        While(
            ScalarOp(
                "le",
                (mul(ScalarRef("r", "i32"), ScalarRef("r", "i32")), Load("x", i, "i32")),
                "bool",
            ),
            (
                Accum("r", "set", add(ScalarRef("r", "i32"), Const(1, "i32"))),
                If(
                    ScalarOp(
                        "eq",
                        (
                            ScalarOp("and", (ScalarRef("r", "i32"), Const(1, "i32")), "i32"),
                            Const(0, "i32"),
                        ),
                        "bool",
                    ),
                    (Accum("even", "add", Const(1, "i32")),),
                    (Accum("even", "add", Const(-1, "i32")),),
                ),
            ),
        ),
        StoreElement("y", i, ScalarRef("r", "i32")),
        StoreElement("z", i, ScalarRef("even", "i32")),
    )
    bufs = (Buf("x", "i32", 20), Buf("y", "i32", 20, "out"), Buf("z", "i32", 20, "out"))
    nothing = np.zeros(20, np.int32)
    check(
        LoopsKernel(bufs, (For("i", 20, body),)),
        np.arange(20, dtype=np.int32) * 7,
        nothing,
        nothing,
    )


def test_uniform_if_in_a_vector_loop():
    cond = ScalarOp("lt", (i, ix(2)), "bool")
    kernel = LoopsKernel(
        (Buf("x", "f32", 4 * 21), Buf("y", "f32", 4 * 21, "out")),
        (
            For(
                "i",
                4,
                (
                    For(
                        "j",
                        21,
                        (
                            Init("a", Const(1.0, "f32")),
                            If(
                                cond,
                                (Accum("a", "add", Load("x", add(mul(i, ix(21)), j), "f32")),),
                                (Accum("a", "set", Const(5.0, "f32")),),
                            ),
                            StoreElement("y", add(mul(i, ix(21)), j), ScalarRef("a", "f32")),
                        ),
                        LoopKind.VECTOR,
                    ),
                ),
            ),
        ),
    )
    check(kernel, *arrays(kernel))


def test_alias_in_place():
    n = 77
    kernel = LoopsKernel(
        (Buf("x", "f32", n), Buf("y", "f32", n, "out", alias="x")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, add(Load("x", i, "f32"), Const(1.0, "f32"))),),
                LoopKind.VECTOR,
            ),
        ),
    )
    x = np.arange(n, dtype=np.float32)
    run_native(kernel, x, x)
    np.testing.assert_array_equal(x, np.arange(n, dtype=np.float32) + 1)


def test_iota_values():
    kernel = LoopsKernel(
        (Buf("y", "i32", 77, "out"), Buf("z", "f32", 77, "out"), Buf("w", "u8", 77, "out")),
        (
            For(
                "i",
                77,
                (
                    Let("v", add(mul(i, ix(3)), ix(-7))),
                    StoreElement("y", i, ScalarOp("cast", (ScalarRef("v", "i64"),), "i32")),
                    StoreElement("z", i, ScalarOp("cast", (ScalarRef("v", "i64"),), "f32")),
                    StoreElement("w", i, ScalarOp("cast", (ScalarRef("v", "i64"),), "u8")),
                ),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


def test_division_and_remainder_of_indices():
    n = 90
    quotient, rest = ScalarOp("div", (i, ix(7)), "i64"), ScalarOp("rem", (i, ix(7)), "i64")
    kernel = LoopsKernel(
        (Buf("x", "f32", n), Buf("y", "f32", n, "out")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, Load("x", add(mul(rest, ix(12)), quotient), "f32")),),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("type_", ["f32", "bf16", "u8", "f64"])
@pytest.mark.parametrize("offset", [0, 4, 16])
def test_streaming_stores(type_, offset):
    """Nontemporal stores where aligned, normal stores elsewhere: `offset` shifts the buffer."""
    n = 300
    at = add(i, ix(offset))
    kernel = LoopsKernel(
        (Buf("x", type_, n), Buf("y", type_, n + offset, "inout")),
        (
            For(
                "i",
                n,
                (StoreElement("y", at, Load("x", i, type_), streaming=True),),
                LoopKind.VECTOR,
            ),
        ),
    )
    check(kernel, *arrays(kernel))
    room = np.zeros((n + offset) * ITEMSIZE[type_] + 64, np.uint8)
    start = -room.ctypes.data % 64
    x, y = arrays(kernel)
    aligned = room[start : start + y.nbytes].view(y.dtype)
    run_native(kernel, x, aligned)
    np.testing.assert_array_equal(aligned[offset:].view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("type_", ["bf16", "f32", "c64"])
@pytest.mark.parametrize("kind", [LoopKind.VECTOR, LoopKind.SERIAL])
@pytest.mark.parametrize("step", [-1, 0, 1, 3, 1000])
def test_prefetches_change_nothing(type_, kind, step):
    n = 77
    kernel = LoopsKernel(
        (Buf("x", type_, n), Buf("y", type_, n, "out")),
        (
            For(
                "i",
                n,
                (
                    Prefetch("x", add(mul(i, ix(step)), ix(n))),
                    StoreElement("y", i, Load("x", i, type_)),
                ),
                kind,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


def packed(type_: str, extent, room: int, kind: str) -> LoopsKernel:
    """Return the elements that are positive or true, and their indices, packed in blocks; and the
    count in each block."""
    x = Load("x", add(mul(j, ix(room)), i), type_)
    expected = x if type_ == "bool" else ScalarOp("gt", (x, Const(0, type_)), "bool")
    kept = tuple(
        StoreElement(to, add(mul(j, ix(room)), k), Load(kept, k, t))
        for to, kept, t in (("y", "a", type_), ("z", "b", "i32"))
    )
    block = (
        Init("n", ix(0)),
        Init("m", ix(0)),
        For(
            "i",
            extent,
            (Pack("n", "a", x, expected), Pack("m", "b", ScalarOp("cast", (i,), "i32"), expected)),
            kind,
        ),
        StoreElement("count", j, ScalarRef("n", "i64")),
        For("k", ScalarRef("m", "i64"), kept),
    )
    size = 3 * room
    bufs = (
        Buf("x", type_, size),
        Buf("y", type_, size, "inout"),
        Buf("z", "i32", size, "inout"),
        Buf("count", "i64", 3, "out"),
    )
    return LoopsKernel(bufs, (For("j", 3, block),), (Buf("a", type_, room), Buf("b", "i32", room)))


@pytest.mark.parametrize("size", range(1, 71))
def test_packing_with_tails(size):
    kernel = packed("f32", size, size, LoopKind.VECTOR)
    check(kernel, *arrays(kernel))
    kernel = packed(
        "i32", ScalarOp("min", (add(j, ix(size - 1)), ix(size)), "i64"), size, LoopKind.VECTOR
    )
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("type_", [*REAL, "bool"])
@pytest.mark.parametrize("kind", [LoopKind.VECTOR, LoopKind.SERIAL])
def test_packing(type_, kind):
    kernel = packed(type_, 200, 200, kind)
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("most", [3, 33, 48, 80, 97])
def test_what_a_computed_extent_counts_is_counted_once(most):
    extent = ScalarOp("min", (add(j, ix(most - 2)), ix(most)), "i64")
    body = (
        Init("n", ix(0)),
        For("i", extent, (Accum("n", "add", Load("x", i, "i64")),), LoopKind.VECTOR),
        StoreElement("y", j, ScalarRef("n", "i64")),
    )
    kernel = LoopsKernel((Buf("x", "i64", most), Buf("y", "i64", 4, "out")), (For("j", 4, body),))
    check(kernel, *arrays(kernel))
    narrow = (
        Init("s", Const(0, "i32")),
        For("i", extent, (Accum("s", "add", Load("x", i, "i32")),), LoopKind.VECTOR),
        StoreElement("y", j, ScalarRef("s", "i32")),
    )
    kernel = LoopsKernel((Buf("x", "i32", most), Buf("y", "i32", 4, "out")), (For("j", 4, narrow),))
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize(
    "divisor", [1, 2, 3, 7, 10, 255, 1000, 4096, 1000003, (1 << 31) - 1, 1 << 40, -3]
)
@pytest.mark.parametrize("op", ["div", "rem"])
def test_division_by_a_constant(op, divisor):
    n = 80
    kernel = LoopsKernel(
        (Buf("x", "i64", n), Buf("y", "i64", n, "out")),
        (
            For(
                "i",
                n,
                (StoreElement("y", i, ScalarOp(op, (Load("x", i, "i64"), ix(divisor)), "i64")),),
                LoopKind.VECTOR,
            ),
        ),
    )
    rng = np.random.default_rng(5)
    x = rng.integers(-(1 << 63), (1 << 63) - 1, n)
    x[:40] >>= rng.integers(0, 63, 40)
    x[40:52] = np.array(
        [
            0,
            1,
            -1,
            divisor,
            -divisor,
            divisor - 1,
            1 - divisor,
            7 * divisor,
            7 * divisor - 1,
            -(1 << 63),
            (1 << 63) - 1,
            (1 << 53) + 1,
        ]
    )
    check(kernel, x, np.zeros(n, np.int64))


@pytest.mark.parametrize("most", [1, 5, 16, 40, 64, 200])
def test_extent_with_a_known_bound(most):
    n = 130
    chunks = -(-n // most)
    start = mul(k, ix(most))
    at = add(start, i)
    extent = ScalarOp("min", (ScalarOp("sub", (ix(n), start), "i64"), ix(most)), "i64")
    kernel = LoopsKernel(
        (Buf("x", "f32", n), Buf("y", "f32", n, "out"), Buf("z", "f32", chunks, "out")),
        (
            For(
                "k",
                chunks,
                (
                    Init("s", Const(float("-inf"), "f32")),
                    For(
                        "i",
                        extent,
                        (
                            StoreElement("y", at, Load("x", at, "f32")),
                            Accum("s", "max", Load("x", at, "f32")),
                        ),
                        LoopKind.VECTOR,
                    ),
                    StoreElement("z", k, ScalarRef("s", "f32")),
                ),
                LoopKind.PARALLEL,
            ),
        ),
    )
    check(kernel, *arrays(kernel))


@pytest.mark.parametrize("size", [1, 15, 16, 17, 31, 33, 64, 75, 130])
@pytest.mark.parametrize("computed", [False, True])
def test_long_bodies(size, computed):
    """Costly bodies run as one masked loop; their reductions, guards and gathers must ignore the
    lanes beyond the end."""
    x, at = Load("x", i, "f32"), Load("w", i, "i64")
    extent = Load("n", ix(0), "i64") if computed else size
    heavy = ScalarOp("tanh", (ScalarOp("exp", (ScalarOp("sin", (x,), "f32"),), "f32"),), "f32")
    kernel = LoopsKernel(
        (
            Buf("n", "i64", 1),
            Buf("x", "f32", size),
            Buf("w", "i64", size),
            Buf("y", "f32", size, "inout"),
            Buf("z", "f32", 2, "out"),
            Buf("c", "i32", 1, "out"),
        ),
        (
            Init("low", Const(float("inf"), "f32")),
            Init("high", Const(-7.0, "f32")),
            Init("count", Const(0, "i32")),
            For(
                "i",
                extent,
                (
                    Let("h", heavy),
                    StoreElement(
                        "y",
                        at,
                        ScalarRef("h", "f32"),
                        ScalarOp("gt", (x, Const(-0.5, "f32")), "bool"),
                    ),
                    Accum("low", "min", ScalarRef("h", "f32")),
                    Accum(
                        "high",
                        "max",
                        Load("x", at, "f32"),
                        ScalarOp("lt", (ScalarRef("h", "f32"), Const(0.9, "f32")), "bool"),
                    ),
                    Accum("count", "add", Const(1, "i32")),
                ),
                LoopKind.VECTOR,
            ),
            StoreElement("z", ix(0), ScalarRef("low", "f32")),
            StoreElement("z", ix(1), ScalarRef("high", "f32")),
            StoreElement("c", ix(0), ScalarRef("count", "i32")),
        ),
    )
    rng = np.random.default_rng(8)
    check(
        kernel,
        np.array([size]),
        rng.uniform(-3, 3, size).astype(np.float32),
        rng.permutation(size),
        np.zeros(size, np.float32),
        np.zeros(2, np.float32),
        np.zeros(1, np.int32),
        max_ulp=4,
    )


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("target", sorted(INTEGERS))
def test_casts_at_the_edges(source, target):
    edges = [0.0, -0.0, 0.5, -0.5, 0.999, -0.999, np.nan, np.inf, -np.inf, 1e30, -1e30]
    edges += [
        sign * (2.0**k + step)
        for k in (7, 8, 15, 16, 31, 32, 63, 64)
        for sign in (1, -1)
        for step in (-1, 0, 1)
    ]
    x = np.array(edges).astype(np.float32 if source == "f32" else np.float64)
    x = np.concatenate([x, np.nextafter(x, x.dtype.type(0)), np.nextafter(x, x.dtype.type(np.inf))])
    kernel = elementwise("cast", [source], target, x.size)
    check(kernel, x, arrays(kernel)[1])
