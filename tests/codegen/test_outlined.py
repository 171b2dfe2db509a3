"""Kernels that call frequent functions instead of inlining them have equal bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import random_array, run_native, ulps
from weft._engine.codegen.kernel.vectorization_plan import (
    OUTLINE_FROM,
    consists_mostly_of_calls,
    repeated_math,
)
from weft._engine.codegen.program.build_record import kernel_ir
from weft._engine.ir.loops import (
    Buf,
    For,
    Index,
    Load,
    LoopKind,
    LoopsKernel,
    ScalarOp,
    StoreElement,
)
from weft._engine.ops import functions

_I = Index("i")
FUNCTIONS = {function.name: function for function in functions.every() if not function.test}


def repeated(op: str, type_: str, size: int, times: int) -> LoopsKernel:
    """Return a kernel whose buffer y_k gets op of x_k, for each k below `times`, in one loop."""
    arity = FUNCTIONS[op].arity
    bufs, body = [], []
    for k in range(times):
        bufs += [Buf(f"x{k}", type_, size, "in"), Buf(f"y{k}", type_, size, "out")]
        body.append(
            StoreElement(f"y{k}", _I, ScalarOp(op, (Load(f"x{k}", _I, type_),) * arity, type_))
        )
    return LoopsKernel(tuple(bufs), (For("i", size, tuple(body), LoopKind.VECTOR),))


@pytest.mark.parametrize("size", [1, 5, 64, 203])
@pytest.mark.parametrize("type_", ["f32", "f64", "f16"])
@pytest.mark.parametrize("op", ["sin", "exp", "tanh", "pow", "erf_inv", "lgamma"])
def test_calls_give_the_bits_of_inlined_code(op, type_, size):
    check(op, type_, size)


@pytest.mark.parametrize("op", sorted(FUNCTIONS))
def test_every_function(op):
    check(op, "f32", 77)


@pytest.mark.parametrize("level", ["avx2", "generic"])
@pytest.mark.parametrize("op", ["sin", "exp", "atan2"])
def test_other_targets(op, level, monkeypatch):
    monkeypatch.setenv("WEFT_CPU_FEATURES", level)
    check(op, "f32", 77)


def check(op: str, type_: str, size: int) -> None:
    rng = np.random.default_rng(5)
    xs = [random_array(rng, type_, size) * (1000 if k == 1 else 1) for k in range(OUTLINE_FROM)]
    xs = [x.astype(xs[0].dtype) for x in xs]
    ys = [np.zeros_like(x) for x in xs]
    run_native(repeated(op, type_, size, OUTLINE_FROM), *[a for pair in zip(xs, ys) for a in pair])
    for x, y in zip(xs, ys):
        alone = np.zeros_like(x)
        run_native(repeated(op, type_, size, 1), x, alone)
        assert ulps(y, alone).max() == 0


def test_module_holds_the_function_once():
    text = kernel_ir(repeated("sin", "f32", 200, 2 * OUTLINE_FROM))
    assert text.count("define internal fastcc") == 1
    assert text.count("call fastcc") == 2 * OUTLINE_FROM


def test_what_is_called():
    assert repeated_math(repeated("sin", "f32", 8, OUTLINE_FROM).body) == {"sin"}
    assert repeated_math(repeated("sin", "f32", 8, OUTLINE_FROM - 1).body) == frozenset()
    assert repeated_math(repeated("sqrt", "f32", 8, OUTLINE_FROM).body) == frozenset()
    assert "cos" in repeated_math(repeated("exp", "c64", 8, OUTLINE_FROM).body)


def test_only_bodies_of_calls_are_left_plain():
    body = repeated("sin", "f32", 200, OUTLINE_FROM).body
    assert consists_mostly_of_calls(body, frozenset({"sin"}))
    assert not consists_mostly_of_calls(body, frozenset())
    assert "optnone" in kernel_ir(repeated("sin", "f32", 200, OUTLINE_FROM))
    assert "optnone" not in kernel_ir(repeated("sin", "f32", 200, OUTLINE_FROM - 1))
