"""Every primitive that weft defines at import has every slot filled, or states why it is empty."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import pytest

import weft._engine.control
import weft._engine.ops
import weft._engine.ops.functions
import weft._engine.pallas.call
import weft.experimental.hijax  # defines more primitives
from weft._engine.core.primitive import (
    OPTIONAL_SLOTS,
    SLOTS,
    BranchLike,
    CollectiveOp,
    ElementwiseOp,
    LoopLike,
    MovementOp,
    Primitive,
    ReduceOp,
    UnsupportedRule,
    registry,
)
from weft._engine.ir.collective_spec import CollectiveSpec
from weft._engine.ops.lowering_specs import (
    ContractSpec,
    ExpandSpec,
    FftSpec,
    GroupedSpec,
    HostLowering,
    ReduceSpec,
    ScanSpec,
    ScatterSpec,
    SortSpec,
)

for package in (weft._engine.ops, weft._engine.ops.functions, weft._engine.control):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)

PULL_STYLE = (ElementwiseOp, MovementOp)
SPECS = (
    ContractSpec,
    ExpandSpec,
    FftSpec,
    GroupedSpec,
    HostLowering,
    ReduceSpec,
    ScanSpec,
    ScatterSpec,
    SortSpec,
)
PRIMITIVES = sorted(registry.values(), key=lambda p: p.name)


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_required_rules_are_stated(primitive: Primitive):
    for slot in SLOTS:
        rule = getattr(primitive, slot)
        assert callable(rule) or isinstance(rule, SPECS), f"{slot} of {primitive} holds {rule!r}"
        if isinstance(rule, UnsupportedRule):
            assert rule.reason != "no rule was given", (
                f"{primitive} has no {slot}: give a rule, or unsupported('why')"
            )
            assert len(rule.reason.split()) > 1, f"{slot} of {primitive} gives no reason"


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_optional_rules_have_their_types(primitive: Primitive):
    for slot in OPTIONAL_SLOTS:
        rule = getattr(primitive, slot)
        expected = CollectiveSpec if slot == "collective" else Callable
        assert rule is None or isinstance(rule, expected), (slot, rule)
    assert (primitive.collective is not None) == isinstance(primitive, CollectiveOp)
    assert (primitive.links is not None) == isinstance(primitive, LoopLike | BranchLike)


def test_every_optional_rule_has_an_op():
    unused = [s for s in OPTIONAL_SLOTS if all(getattr(p, s) is None for p in PRIMITIVES)]
    assert not unused


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_families_lower_in_their_form(primitive: Primitive):
    assert type(primitive) is not Primitive
    lower = primitive.lower
    if isinstance(primitive, PULL_STYLE) and not isinstance(lower, HostLowering | ExpandSpec):
        assert callable(lower), f"{primitive} lowers by a function"
    if isinstance(primitive, ReduceOp):
        assert isinstance(lower, ReduceSpec)


def test_the_contract_names_are_there():
    names = """add sub mul div rem neg sign abs max min pow integer_pow exp exp2 log expm1 log1p sin cos tan asin acos
    atan sinh cosh tanh asinh acosh atanh logistic sqrt rsqrt cbrt square floor ceil round erf erfc erf_inv lgamma
    digamma bessel_i0e bessel_i1e is_finite nextafter atan2 and or xor not shift_left shift_right_logical
    shift_right_arithmetic population_count clz eq ne lt le gt ge select_n clamp convert_element_type
    bitcast_convert_type real imag conj complex iota broadcast_in_dim reshape transpose rev squeeze reduce_sum
    reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin cumsum cumprod cummax cummin
    cumlogsumexp sort top_k threefry2x32 copy stop_gradient add_any"""
    assert not [n for n in names.split() if n not in registry]
