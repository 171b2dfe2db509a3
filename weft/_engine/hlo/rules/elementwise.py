"""Rules for elementwise operations: as XLA operations, or as weft's scalar code on whole arrays.

In:   operands of one shape, or of rank 0.
Out:  one operation; or, from the `lower` rule of the primitive, one operation for each Loops
      operation and each step of a formula. Long code becomes a function of the module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.core.primitive import ElementwiseOp
from weft._engine.hlo.lowering import Rule, result_types, rule
from weft._engine.hlo.ops import HloBlock, HloValue, array_type, dtype_kind
from weft._engine.hlo.rules.formulas import NAMED, apply
from weft._engine.ir.build import HALVES, KERNEL_DTYPES, LoopsBuilder, type_name
from weft._engine.ir.jaxpr import Atom, Eqn, Var
from weft._engine.ir.loops import COMPARISONS, Const, Expr, Index, ScalarOp, ScalarRef
from weft._engine.ir.registry import functions
from weft._engine.util import dtypes

#: primitives that are one operation of StableHLO or CHLO
DIRECT = {
    "add": "add",
    "add_any": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "rem": "remainder",
    "neg": "negate",
    "max": "maximum",
    "min": "minimum",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "not": "not",
    "shift_left": "shift_left",
    "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "population_count": "popcnt",
    "clz": "count_leading_zeros",
    "sign": "sign",
    "abs": "abs",
    "real": "real",
    "imag": "imag",
    "complex": "complex",
    "is_finite": "is_finite",
    "atan2": "atan2",
}
_COMPARED = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}
#: Loops operations with the same meaning as a primitive of another name
_OF_LOOPS = {
    "shl": "shift_left",
    "shr_logical": "shift_right_logical",
    "shr_arithmetic": "shift_right_arithmetic",
    "popcount": "population_count",
}
_DTYPES = {
    "bool": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
#: wider dtypes for the computation of narrow ones, by kind
_WIDE = {"f": np.dtype(np.float32), "i": np.dtype(np.int8), "u": np.dtype(np.uint8)}
#: the number of scalar operations from which on code becomes a function of the module
_MANY = 12


def broadcast_operands(b: HloBlock, args: Sequence[HloValue]) -> list[HloValue]:
    """Return the operands of an elementwise operation, broadcast to one shape."""
    shape = next((x.shape for x in args if x.ndim), ())
    return [b.broadcast(x, shape) for x in args]


@rule(ElementwiseOp)
def _elementwise(b: HloBlock, eqn: Eqn, *args: HloValue) -> HloValue | list[HloValue]:
    name, types = eqn.primitive.name, result_types(eqn)
    direct = _direct_op(b, name)
    if direct:
        return b.op(direct, *broadcast_operands(b, args), type=types[0])
    return _scalar_code(b, eqn, *args)


def _direct_op(b: HloBlock, name: str) -> str | None:
    """Return the XLA operation that computes a primitive, or None."""
    op = DIRECT.get(name) or NAMED.get(name)
    return op if op and b.context.has(op) else None


@rule("eq", "ne", "lt", "le", "gt", "ge")
def _comparison(b: HloBlock, eqn: Eqn, x: HloValue, y: HloValue) -> HloValue:
    return b.compare(_COMPARED[eqn.primitive.name], *broadcast_operands(b, (x, y)))


@rule("copy", "name", "stop_gradient")
def _same(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return x


@rule("xla_metadata_value")
def _tag(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    b.tag(x, eqn.params["xla_metadata_kvs"])
    return x


@rule("layout_constraint")
def _layout_constraint(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return b.op(
        "custom_call", x, target="LayoutConstraint", backend_config={}, has_side_effect=False
    )


@rule("convert_element_type")
def _convert(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return b.convert(x, result_types(eqn)[0].dtype)


@rule("bitcast_convert_type")
def _bitcast(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return (
        x
        if x.dtype == result_types(eqn)[0].dtype
        else b.op("bitcast_convert", x, type=result_types(eqn)[0])
    )


@rule("reduce_precision")
def _reduce_precision(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return b.op("reduce_precision", x, **eqn.params)


@rule("sign", "abs")
def _sign_or_abs(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    """Write `sign` or `abs`; XLA lacks both for unsigned integers."""
    name = eqn.primitive.name
    if dtype_kind(x.dtype) != "u":
        return b.op(name, x, type=result_types(eqn)[0])
    return x if name == "abs" else b.op("minimum", x, b.like(x, 1))


@rule("round")
def _round(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return b.op("round_nearest_even" if eqn.params["rounding_method"] else "round_nearest_afz", x)


@rule("clamp")
def _clamp(b: HloBlock, eqn: Eqn, low: HloValue, x: HloValue, high: HloValue) -> HloValue:
    return b.op("clamp", *broadcast_operands(b, (low, x, high)), type=result_types(eqn)[0])


@rule("select_n")
def _select(b: HloBlock, eqn: Eqn, which: HloValue, *cases: HloValue) -> HloValue:
    which, *arrays = broadcast_operands(b, (which, *cases))
    if dtype_kind(which.dtype) == "b":
        return b.op("select", which, arrays[-1], arrays[0], type=arrays[0].type)
    out = arrays[-1]
    for i, x in reversed(list(enumerate(arrays[:-1]))):
        out = b.op("select", b.compare("LE", which, b.like(which, i)), x, out, type=out.type)
    return out


@rule("pow")
def _pow(b: HloBlock, eqn: Eqn, x: HloValue, y: HloValue) -> HloValue:
    return b.op(
        "power", *broadcast_operands(b, (x, b.convert(y, x.dtype))), type=result_types(eqn)[0]
    )


@rule("exp2")
def _exp2(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    return b.op("power", b.like(x, 2), x)


@rule("logaddexp")
def _logaddexp(b: HloBlock, eqn: Eqn, x: HloValue, y: HloValue) -> HloValue:
    x, y = broadcast_operands(b, (x, y))
    top, gap = b.op("maximum", x, y), b.op("abs", b.op("subtract", x, y))
    log_term = b.op("log_plus_one", b.op("exponential", b.op("negate", gap)))
    # the difference of equal infinities is NaN
    return b.op("select", b.compare("NE", gap, gap), top, b.op("add", top, log_term), type=x.type)


# --- by scalar code


def _scalar_code(b: HloBlock, eqn: Eqn, *args: HloValue) -> list[HloValue]:
    """Write the scalar code of a kernel element, applied to whole arrays.

    Dtypes that kernels do not have are computed in wider types.
    """
    if not all(KERNEL_DTYPES[x.dtype] for x in (*args, *result_types(eqn))):
        return compute_in_wide_types(b, eqn, args, _scalar_code)
    build, avals, types = LoopsBuilder(), [a.aval for a in eqn.invars], result_types(eqn)
    shape = types[0].shape
    at = tuple([build.index(f"i{d}", n) for d, n in enumerate(shape)])
    pulls = [_operand_reader(build, i, a) for i, a in enumerate(avals)]
    code = eqn.primitive.lower(
        build, at, *pulls, in_avals=avals, out_avals=[v.aval for v in eqn.outvars], **eqn.params
    )
    code = list(code) if isinstance(code, (list, tuple)) else [code]
    write = lambda inner, *xs: [
        inner.convert(y, t.dtype)
        for y, t in zip(_ArrayEvaluator(inner, shape, xs).values(code), types)
    ]
    if sum(1 for _ in _operations(code)) < _MANY and not any(
        _is_formula(b, op) for op in _operations(code)
    ):
        return write(b, *args)
    key = tuple(sorted((k, str(v)) for k, v in eqn.params.items()))
    return b.context.call_shared(b, eqn.primitive.name, key, args, write)


def compute_in_wide_types(
    b: HloBlock, eqn: Eqn, args: Sequence[HloValue], write: Rule
) -> list[HloValue]:
    """Write an equation with `write`, computed in wider types.

    Narrow floats become 32-bit, narrow integers 8-bit.

    The results are converted to the dtypes of the equation.
    """
    wide_eqn = eqn.replace(
        invars=[_widen(a) for a in eqn.invars], outvars=[_widen(v) for v in eqn.outvars]
    )
    results = write(
        b, wide_eqn, *[b.convert(x, v.aval.dtype) for x, v in zip(args, wide_eqn.invars)]
    )
    results = [results] if isinstance(results, HloValue) else results
    return [b.convert(y, t.dtype) for y, t in zip(results, result_types(eqn))]


def _widen(atom: Atom) -> Var:
    """Return a variable with the type of `atom`, widened if it has at most 8 bits."""
    dtype = atom.aval.dtype
    narrow = dtype_kind(dtype) in _WIDE and dtypes.itemsize_bits(dtype) <= 8
    return Var(atom.aval.update(dtype=_WIDE[dtype_kind(dtype)]) if narrow else atom.aval)


def _operand_reader(build: LoopsBuilder, i: int, aval: Any) -> Callable[..., Expr]:
    """Return a function that reads operand i at the position of the element."""

    def pull(index: Any, guard: Any = None) -> Expr:
        return build.ref(f"x{i}", type_name(aval.dtype))

    return pull


def _operations(exprs: Sequence[Expr]) -> Any:
    """Yield the distinct operations in expressions."""
    seen, pending = set(), list(exprs)
    while pending:
        expr = pending.pop()
        if isinstance(expr, ScalarOp) and id(expr) not in seen:
            seen.add(id(expr))
            pending += expr.args
            yield expr


def _is_formula(b: HloBlock, op: ScalarOp) -> bool:
    return functions[op.op] is not None and not _direct_op(b, op.op)


class _ArrayEvaluator:
    """An evaluator of Loops expressions on whole arrays."""

    def __init__(self, b: HloBlock, shape: Sequence[int], operands: Sequence[HloValue]):
        self.b, self.shape = b, tuple(shape)
        self.operands = [b.broadcast(x, shape) for x in operands]
        self.memo: dict[int, HloValue] = {}

    def values(self, exprs: Sequence[Expr]) -> list[HloValue]:
        """Return the values of expressions; shared subexpressions are computed once."""
        return [self.value(e) for e in exprs]

    def value(self, expr: Expr) -> HloValue:
        """Return the value of an expression."""
        if id(expr) not in self.memo:
            self.memo[id(expr)] = self.evaluate_uncached(expr)
        return self.memo[id(expr)]

    def evaluate_uncached(self, expr: Expr) -> HloValue:
        """Compute the value of an expression."""
        b = self.b
        if isinstance(expr, Const):
            return b.full(self.shape, expr.value, _dtype(expr.type))
        if isinstance(expr, ScalarRef):
            return self.operands[int(expr.name[1:])]
        if isinstance(expr, Index):
            return b.iota(self.shape, np.int64, int(expr.name[1:]))
        if not isinstance(expr, ScalarOp):
            raise NotImplementedError(
                f"as_text: scalar code reads memory by {type(expr).__name__}."
            )
        return self.operation(expr.op, expr.type, [self.value(a) for a in expr.args])

    def operation(self, op: str, type_: str, args: list[HloValue]) -> HloValue:
        """Write an operation of Loops."""
        b, out = self.b, array_type(self.shape, _dtype(type_))
        if op in COMPARISONS:
            return b.compare(_COMPARED[op], *args)
        if op == "select":
            return b.op("select", *args, type=args[1].type)
        if op == "cast":
            return b.convert(args[0], out.dtype)
        if op == "bitcast":
            return b.op("bitcast_convert", args[0], type=out)
        if op == "conj":
            return b.op(
                "complex", b.real(args[0]), b.op("negate", b.real(args[0], "imag")), type=out
            )
        if op == "fma":
            return b.op("add", b.op("multiply", *args[:2]), args[2])
        name = _direct_op(b, _OF_LOOPS.get(op, op))
        if name:
            return b.op(name, *args, type=out)
        return b.convert(apply(b, op, args, type_), out.dtype)


def _dtype(type_: str) -> np.dtype:
    return np.dtype(getattr(dtypes, _DTYPES[type_]) if type_ in HALVES else _DTYPES[type_])
