"""Every primitive that importing weft defines has every slot filled, or says on purpose why it is empty."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import pytest

import weft._engine.control
import weft._engine.ops
import weft._engine.ops.functions
import weft._engine.pallas.call
import weft.experimental.hijax  # defines primitives of its own
from weft._engine.core.primitive import OPTIONAL_SLOTS, SLOTS, Primitive, Unsupported, registry
from weft._engine.ir.collective_spec import CollectiveSpec
from weft._engine.ops.families import (
    BranchSpec,
    ContractSpec,
    ExpandSpec,
    FftSpec,
    GroupedSpec,
    HostSpec,
    LoopSpec,
    ReduceSpec,
    ScanSpec,
    ScatterSpec,
    SortSpec,
)
from weft._engine.ops.split_rule import SplitRule

for package in (weft._engine.ops, weft._engine.ops.functions, weft._engine.control):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)

KINDS = {
    "elementwise",
    "layout",
    "slice",
    "index",
    "reduce",
    "contract",
    "conv",
    "ragged",
    "sort",
    "scan",
    "scatter",
    "random",
    "collective",
    "region",
    "library",
    "constraint",
    "callback",
    "barrier",
    "custom",
    "terms",
}
PULL_STYLE = {"elementwise", "layout", "slice", "random"}
SPECS = (
    BranchSpec,
    LoopSpec,
    ContractSpec,
    ExpandSpec,
    FftSpec,
    GroupedSpec,
    HostSpec,
    ReduceSpec,
    ScanSpec,
    ScatterSpec,
    SortSpec,
)
PRIMITIVES = sorted(registry.values(), key=lambda p: p.name)


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_slots_are_filled(primitive: Primitive):
    empty = [slot for slot in SLOTS if slot not in primitive.rules]
    assert not empty, f"{primitive} has no {', '.join(empty)}: give rules, or unsupported('why')"
    for slot in SLOTS:
        rule = primitive.rules[slot]
        assert callable(rule) or isinstance(rule, (Unsupported, *SPECS)), (
            f"{slot} of {primitive} holds {rule!r}"
        )
        if isinstance(rule, Unsupported):
            assert len(rule.reason.split()) > 1, f"{slot} of {primitive} gives no reason"


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_other_slots_are_known(primitive: Primitive):
    for slot in set(primitive.rules) - set(SLOTS):
        assert slot in OPTIONAL_SLOTS, (
            f"{primitive} fills {slot}, of which `core.primitive` does not know"
        )
        rule = primitive.rules[slot]
        assert isinstance(
            rule,
            {"split": SplitRule, "collective": CollectiveSpec}.get(slot, (Callable, Unsupported)),
        ), (slot, rule)
    assert ("collective" in primitive.rules) == (primitive.kind == "collective")
    assert ("links" in primitive.rules) == isinstance(
        primitive.rules["lower"], (LoopSpec, BranchSpec)
    )


def test_no_slot_is_known_in_vain():
    assert set().union(*(p.rules for p in PRIMITIVES)) == {*SLOTS, *OPTIONAL_SLOTS}


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_kinds_are_known(primitive: Primitive):
    assert primitive.kind in KINDS
    lower = primitive.rules.get("lower")
    if primitive.kind in PULL_STYLE and not isinstance(lower, (Unsupported, HostSpec, ExpandSpec)):
        assert callable(lower), f"{primitive} of kind {primitive.kind} lowers by a function"
    if primitive.kind == "reduce":
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
