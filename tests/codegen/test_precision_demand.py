"""Functions whose results are only rounded to half floats are computed with less precision;
functions with other uses are not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.codegen.harness import run_native
from weft import nn
from weft._engine.codegen.kernel.precision_demand import demands_of
from weft._engine.codegen.toolchain.target import current
from weft._engine.ir.loops_text import parse_kernel

HALVES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def demands(
    body: str, bufs: str = "in x: f32[64], out y: bf16[64]", scratch: str = ""
) -> list[str]:
    """Return the precision demands of a kernel's functions, in increasing order."""
    return sorted(
        demands_of(
            parse_kernel(f"kernel k({bufs}{scratch and '; scratch ' + scratch}) {{\n{body}\n}}")
        ).values()
    )


LOOP = "vector j in 64 {{\n{}\n}}"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("y[@j] = cast.bf16(mul.f32(x[@j], exp.f32(x[@j])))", ["bf16"]),
        (
            "y[@j] = cast.bf16(div.f32(neg.f32(exp.f32(x[@j])), add.f32(1.0:f32, exp2.f32(x[@j]))))",
            ["bf16", "bf16"],
        ),
        (
            "y[@j] = cast.bf16(select.f32(lt.bool(exp.f32(x[@j]), 2.0:f32), x[@j], logistic.f32(x[@j])))",
            ["bf16"],
        ),
        # a difference amplifies errors, and so does another function
        ("y[@j] = cast.bf16(sub.f32(exp.f32(x[@j]), 1.0:f32))", []),
        ("y[@j] = cast.bf16(add.f32(exp.f32(x[@j]), x[@j]))", []),
        ("y[@j] = cast.bf16(log.f32(exp.f32(x[@j])))", []),
        ("y[@j] = cast.bf16(exp.f32(exp.f32(x[@j])))", ["bf16"]),
        # formulas of other functions are short for arguments of their own type only
        ("y[@j] = cast.bf16(sin.f32(x[@j]))", []),
        ("let v = exp.f32(x[@j])\ny[@j] = cast.bf16(%v)", ["bf16"]),
        ("let v = exp.f32(x[@j])\ny[@j] = cast.bf16(mul.f32(%v, sin.f32(%v)))", []),
    ],
)
def test_what_lies_between(text, expected):
    assert demands(LOOP.format(text)) == expected


def test_the_longest_reader_decides():
    for type_, value, expected in (("f16", "cast.f16(%v)", ["f16"]), ("f32", "%v", [])):
        text = LOOP.format(f"let v = exp.f32(x[@j])\ny[@j] = cast.bf16(%v)\nz[@j] = {value}")
        assert demands(text, f"in x: f32[64], out y: bf16[64], out z: {type_}[64]") == expected


def test_sums_of_a_row_and_scratch():
    text = (
        "acc a = {}:f32\nvector j in 64 {{\nlet v = exp.f32(x[@j])\na add= %v\ns[@j] = %v\n}}\n"
        "vector j in 64 {{\ny[@j] = cast.bf16(div.f32({}, %a))\n}}"
    )
    assert demands(text.format("0.0", "s[@j]"), scratch="s: f32[64]") == ["bf16"]
    assert demands(text.format("-1.0", "s[@j]"), scratch="s: f32[64]") == []
    assert demands(text.format("0.0", "log.f32(s[@j])"), scratch="s: f32[64]") == []


def test_products_over_turns_keep_all_bits():
    text = "acc a = 1.0:f32\nvector j in 64 {{\na {}= exp.f32(x[@j])\n}}\ny[0:i64] = cast.bf16(%a)"
    assert demands(text.format("mul")) == [] and demands(text.format("max")) == ["bf16"]
    text = (
        "vector j in 64 {\ns[@j] = 1.0:f32\n}\nserial k in 4 {\nvector j in 64 {\ns[@j] = mul.f32(s[@j], exp.f32(x[@j]))\n}\n}\n"
        "vector j in 64 {\ny[@j] = cast.bf16(s[@j])\n}"
    )
    assert demands(text, scratch="s: f32[64]") == []
    # the same through a named value, which only sums may extend
    text = (
        "vector j in 64 {{\ns[@j] = 1.0:f32\n}}\nserial k in 4 {{\nvector j in 64 {{\nlet v = {}.f32(s[@j], exp.f32(x[@j]))\n"
        "s[@j] = %v\n}}\n}}\nvector j in 64 {{\ny[@j] = cast.bf16(s[@j])\n}}"
    )
    assert demands(text.format("mul"), scratch="s: f32[64]") == [] and demands(
        text.format("add"), scratch="s: f32[64]"
    ) == ["bf16"]
    text = "acc a = 1.0:f32\nvector j in 64 {\na add= mul.f32(%a, exp.f32(x[@j]))\n}\ny[0:i64] = cast.bf16(%a)"
    assert demands(text) == []


def test_sums_with_what_a_guarded_read_gives_otherwise():
    text = (
        "vector j in 64 {{\ns[@j] = 1.0:f32\n}}\nvector j in 64 {{\n"
        "y[@j] = cast.bf16(add.f32(exp.f32(x[@j]), s[@j ? lt.bool(x[@j], 1.0:f32) : {}:f32]))\n}}"
    )
    assert demands(text.format("0.5"), scratch="s: f32[64]") == ["bf16"]
    assert demands(text.format("-1.0"), scratch="s: f32[64]") == []


def error(got: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest error in units of the last place of the type, where the exact result is
    finite in it."""
    info = ml_dtypes.finfo(got.dtype)
    finite = np.abs(exact) < float(info.max)
    assert np.isfinite(got[finite].astype(np.float64)).all()
    exponent = np.maximum(np.frexp(exact[finite])[1] - 1, int(info.minexp))
    return float(
        np.max(
            np.abs(got[finite].astype(np.longdouble) - exact[finite])
            / 2.0 ** (exponent - info.nmant)
        )
    )


def every(type_: str) -> np.ndarray:
    """Return all finite values of a half type."""
    x = np.arange(1 << 16, dtype=np.uint16).view(HALVES[type_])
    return x[np.isfinite(x.astype(np.float32))]


EXACT = {
    "gelu": (
        nn.gelu,
        lambda x: (
            x / (1 + np.exp(-x * (2 * np.sqrt(2 / np.longdouble(np.pi)) * (1 + 0.044715 * x * x))))
        ),
    ),
    "exp scaled": (
        lambda x: (3 * wnp.exp(x.astype(np.float32))).astype(x.dtype),
        lambda x: 3 * np.exp(x),
    ),
    "sigmoid": (
        lambda x: nn.sigmoid(x.astype(np.float32)).astype(x.dtype),
        lambda x: 1 / (1 + np.exp(-x)),
    ),
    "silu": (
        lambda x: nn.silu(x.astype(np.float32)).astype(x.dtype),
        lambda x: x / (1 + np.exp(-x)),
    ),
    "2 to the": (lambda x: wnp.exp2(x.astype(np.float32)).astype(x.dtype), lambda x: np.exp2(x)),
}


@pytest.mark.parametrize("type_", HALVES)
@pytest.mark.parametrize("name", EXACT)
def test_every_value_rounds_as_it_should(name, type_):
    function, exact = EXACT[name]
    x = every(type_)
    with np.errstate(over="ignore", under="ignore"):
        assert error(np.asarray(weft.jit(function)(x)), exact(x.astype(np.longdouble))) <= 0.52


@pytest.mark.parametrize("type_", HALVES)
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_halves(type_, axis):
    x = (8 * np.random.default_rng(0).standard_normal((70, 333))).astype(HALVES[type_])
    e = np.exp(x.astype(np.longdouble) - x.max(axis, keepdims=True).astype(np.longdouble))
    assert (
        error(
            np.asarray(weft.jit(lambda x: nn.softmax(x, axis))(x)), e / e.sum(axis, keepdims=True)
        )
        <= 0.52
    )


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values(special):
    for type_ in HALVES.values():
        x = np.full(40, 2, type_)
        x[7] = special
        for name in ("gelu", "silu", "sigmoid"):
            with np.errstate(over="ignore", invalid="ignore"):
                exact = EXACT[name][1](x.astype(np.longdouble))
            got = np.asarray(weft.jit(EXACT[name][0])(x))
            # both are x / (1 + inf) or inf / (1 + 0), but for zero times infinity
            assert np.isnan(got[7]) == (
                np.isnan(exact[7]) or (special == -np.inf and name != "sigmoid")
            ), name
            np.testing.assert_array_equal(np.delete(got, 7), got[0])


def test_several_vectors_with_a_subnormal_number_among_them():
    """Parts of one iteration whose rare branches are merged."""
    text = "kernel k(in x: f32[{0}], out y: bf16[{0}]) {{\nvector j in {0} {{\ny[@j] = cast.bf16(mul.f32(x[@j], 0.5:f32))\n}}\n}}"
    for size in range(1, 71):
        x = np.linspace(-3, 3, size, dtype=np.float32)
        for at in {0, size // 2, size - 1}:
            x[at] = 1e-39
            y = np.zeros(size, ml_dtypes.bfloat16)
            run_native(parse_kernel(text.format(size)), x, y)
            np.testing.assert_array_equal(y, (x * np.float32(0.5)).astype(ml_dtypes.bfloat16))


def test_fewer_multiplications():
    from weft._engine.codegen.kernel.kernel_emitter import module_ir

    text = "kernel k(in x: f32[64], out y: {0}[64]) {{\nvector j in 64 {{\ny[@j] = {1}exp.f32(x[@j]){2}\n}}\n}}"
    full, brief = (
        module_ir([(parse_kernel(text.format(*way)), "k")], current())
        for way in (("f32", "", ""), ("bf16", "cast.bf16(", ")"))
    )
    assert brief.count("llvm.fma") + brief.count(" fmul ") < full.count("llvm.fma") + full.count(
        " fmul "
    )
