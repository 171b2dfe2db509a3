"""Restricted instruction sets: equal results on AVX2 and plain x86-64, and one name per target in
the caches."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from tests.codegen.accuracy import bound, measure
from tests.codegen.harness import check, random_array
from tests.codegen.kernel_cases import arrays, elementwise, packed
from tests.codegen.test_random_kernels import Maker
from tests.codegen.test_vector_scan import numbers, running
from weft._engine.codegen.program.build_record import kernel_ir
from weft._engine.codegen.toolchain import target
from weft._engine.ir.loops import LoopKind

LEVELS = ["avx2", "generic"]
pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="x86-64 levels"
)


@pytest.fixture(params=LEVELS)
def level(request, monkeypatch):
    monkeypatch.setenv("WEFT_CPU_FEATURES", request.param)
    return request.param


@pytest.mark.parametrize("type_", ["f32", "f64", "i8", "bool", "bf16", "f16", "u64", "c64"])
def test_elementwise(level, type_):
    for size in (1, 7, 70, 290):
        kernel = elementwise("add", [type_, type_], type_, size)
        check(kernel, *arrays(kernel))


@pytest.mark.parametrize(
    "type_, how", [("f32", "add"), ("f64", "max"), ("i8", "add"), ("bool", "or"), ("c64", "add")]
)
def test_prefixes(level, type_, how):
    for size in (1, 5, 8, 9, 17, 70, 290):
        x = numbers(type_, size)
        check(running(type_, size, how), x, np.zeros_like(x), numbers(type_, 2))


@pytest.mark.parametrize("type_", ["f32", "i8", "f64", "bool", "bf16"])
def test_packing(level, type_):
    for size in (1, 5, 8, 9, 17, 70, 290):
        kernel = packed(type_, size, size, LoopKind.VECTOR)
        check(kernel, *arrays(kernel))


@pytest.mark.parametrize("seed", range(0, 120, 8))
def test_random_kernel(level, seed):
    maker = Maker(seed)
    kernel = maker.kernel()
    check(kernel, *[random_array(maker.rng, buf.type, buf.size) for buf in kernel.bufs])


@pytest.mark.parametrize(
    "op",
    [
        "exp",
        "log",
        "sin",
        "cos",
        "tanh",
        "erf",
        "erf_inv",
        "log1p",
        "cbrt",
        "round_even",
        "pow",
        "nextafter",
    ],
)
@pytest.mark.parametrize("type_", ["f32", "f64", "f16"])
def test_math_accuracy(level, op, type_):
    worst, args = measure(op, type_, 300)
    # without fused multiply-add the reductions are slightly less accurate
    assert worst <= bound(op, type_) + (0.5 if level == "generic" else 0), args


def test_level_names_a_target(level):
    here = target.current()
    if here.level == level:
        assert here.vector_bytes == {"avx2": 32, "generic": 16}[level]
        # AVX2 masks elements of four and eight bytes, plain x86-64 none
        assert ("masked.load" in kernel_ir(elementwise("add", ["f32", "f32"], "f32", 70))) == (
            level == "avx2"
        )
        assert "masked.load" not in kernel_ir(elementwise("add", ["i8", "i8"], "i8", 70))


def test_plain_avx512(monkeypatch):
    monkeypatch.setenv("WEFT_CPU_FEATURES", "avx512-plain")
    here = target.current()
    if here.level != "avx512":
        pytest.skip("for processors with AVX-512")
    assert here.vector_bytes == 64 and here.has_masks and not here.has_bf16
    for type_ in ("f32", "bf16", "f16"):
        kernel = elementwise("add", [type_, type_], type_, 70)
        check(kernel, *arrays(kernel))


def test_unknown_level(monkeypatch):
    monkeypatch.setenv("WEFT_CPU_FEATURES", "avx1024")
    with pytest.raises(ValueError, match="avx1024"):
        target.current()
