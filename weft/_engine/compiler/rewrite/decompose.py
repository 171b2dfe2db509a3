"""Decomposition of composite ops, and of ops that are slow as single kernels.

In, out: jaxprs. Composites (`ExpandSpec`) become the equations that define them; tiny matmuls and matmuls of dtypes without a
GEMM become products and sums; a reduction to few elements becomes two reductions, so that parts of the first run in parallel.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from weft._engine import hooks
from weft._engine.compiler.fusion.classify import (
    LoweringKind,
    loop_of,
    lowering_kind,
    row_major,
)
from weft._engine.compiler.fusion.reduction_domain import reduced_dims, stays_in_strips
from weft._engine.compiler.rewrite.concatenations import decompose_concatenation
from weft._engine.compiler.rewrite.half_reductions import narrow_reductions
from weft._engine.compiler.rewrite.variance_rewrite import split_deviations
from weft._engine.core.primitive import (
    BarrierOp,
    ContractOp,
    ConvolutionOp,
    ElementwiseOp,
    LayoutOp,
    LibraryOp,
    registry,
)
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof, with_source
from weft._engine.ir.build import HALVES, type_name
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft._engine.ir.rewrite import cse, dce, inline_calls, map_jaxprs, substitute, use_counts
from weft._engine.ops import complex_functions
from weft._engine.ops.lowering_specs import ContractSpec
from weft._engine.util.dtypes import is_complex, is_native_integer
from weft._engine.util.machine_model import MODEL
from weft._engine.util.promotion import sum_dtype

# thresholds, measured on several machines
#: minimal number of elements of a reduction that is split
_REDUCTION_SPLIT_FROM = 1 << 16
#: number of rows that occupies all threads
_REDUCTION_SPLIT_ROWS = 32
#: number of tasks over strips of columns that occupies all threads
_REDUCTION_SPLIT_TASKS = 48
#: adjacent columns that one task reduces
_REDUCTION_SPLIT_COLUMNS = 1024
#: parts of a reduction to one element
_REDUCTION_SPLIT_PARTS = 128
#: maximal number of multiplications of a matmul that is cheaper as multiply and sum, per batch element
_TINY_PRODUCT = 1024
#: maximal number of terms of such a sum that are added one by one instead of reduced
_UNROLLED_SUM = 7
#: maximal number of multiplications per row of a product of many rows and a tiny matrix
_TINY_ROW_PRODUCT = 36


def expand(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with composites decomposed, including those in control flow."""
    jaxpr = inline_calls(jaxpr)
    if any(loop_of(eqn) for eqn in jaxpr.eqns):
        from weft._engine.compiler.rewrite.loop_hoisting import lift_products

        jaxpr = lift_products(jaxpr)
    return _drop_barriers(
        _fold_transposes(_fold_reshapes(_rebuild(split_deviations(narrow_reductions(jaxpr)))))
    )


def _drop_barriers(jaxpr: Jaxpr) -> Jaxpr:
    """Replace optimization barriers by their operands; no later pass merges equal computations."""
    if not any(isinstance(eqn.primitive, BarrierOp) for eqn in jaxpr.eqns):
        return jaxpr
    env: dict[Var, Atom] = {}
    eqns = []
    for eqn in jaxpr.eqns:
        (eqn,) = substitute([eqn], env) if env else (eqn,)
        if isinstance(eqn.primitive, BarrierOp):
            env.update(zip(eqn.outvars, eqn.invars))
        else:
            eqns.append(eqn)
    return jaxpr.replace(
        eqns=eqns, outvars=[a if type(a) is Literal else env.get(a, a) for a in jaxpr.outvars]
    )


#: A matmul that writes its result with permuted dims, from a dot_general and a transpose. Only this module creates it.
transposed_dot_p = ContractOp("transposed_dot", register=False)
transposed_dot_p.lower = ContractSpec()


@transposed_dot_p.def_type
def _transposed_dot_type(*avals, permutation, **params):
    aval = registry["dot_general"].type(*avals, **params)
    return aval.update(shape=tuple(aval.shape[d] for d in permutation))


@transposed_dot_p.def_reference
def _transposed_dot_reference(*args, permutation, **params):
    return np.transpose(registry["dot_general"].reference(*args, **params), permutation)


def _fold_reshapes(jaxpr: Jaxpr) -> Jaxpr:
    """Merge each reshape of a reshape into one, as where a composite splits dims that another op has merged."""
    sources: dict[Var, Atom] = {}
    eqns = []
    for eqn in jaxpr.eqns:
        if isinstance(eqn.primitive, LayoutOp) and eqn.primitive.moves == "reshape":
            (x,) = eqn.invars
            source = x if type(x) is Literal else sources.get(x, x)
            if source is not x:
                eqn = eqn.replace(
                    primitive=registry["reshape"],
                    invars=[source],
                    params={"new_sizes": eqn.outvars[0].aval.shape},
                )
            sources[eqn.outvars[0]] = source
        eqns.append(eqn)
    return (
        dce(jaxpr.replace(eqns=eqns))
        if any(a is not b for a, b in zip(eqns, jaxpr.eqns))
        else jaxpr
    )


def _fold_transposes(jaxpr: Jaxpr) -> Jaxpr:
    """Fold each transpose into its matmul if it is the only reader, unless the matmul would then write separate elements.

    If the matmul already has a permutation, as in a convolution, the permutations are composed.
    """
    uses = use_counts(jaxpr)
    dots: dict[Var, tuple[int, Eqn]] = {}
    eqns: list[Eqn | None] = []
    for eqn in jaxpr.eqns:
        if isinstance(eqn.primitive, ContractOp) and uses.get(eqn.outvars[0]) == 1:
            dots[eqn.outvars[0]] = len(eqns), eqn
        elif (
            isinstance(eqn.primitive, LayoutOp)
            and eqn.primitive.moves == "permute"
            and type(eqn.invars[0]) is not Literal
            and eqn.invars[0] in dots
        ):
            at, dot = dots[eqn.invars[0]]
            inner = dot.params.get("permutation", range(dot.outvars[0].aval.ndim))
            params = {
                **dot.params,
                "permutation": tuple(inner[d] for d in eqn.params["permutation"]),
            }
            transposed = Eqn(transposed_dot_p, dot.invars, eqn.outvars, params, dot.source)
            if _is_contiguous(transposed):
                eqns[at], eqn = None, transposed
        eqns.append(eqn)
    remaining = [e for e in eqns if e is not None]
    return jaxpr if len(remaining) == len(jaxpr.eqns) else jaxpr.replace(eqns=remaining)


def _is_contiguous(dot: Eqn) -> bool:
    """Return whether a matmul writes rows or columns of adjacent elements, or a small result."""
    from weft._engine.compiler.kernels.library_calls import Contraction

    a, b = (row_major(x.aval.shape) for x in dot.invars)
    is_small = dot.outvars[0].aval.nbytes <= MODEL.parallel_bytes
    return is_small or 1 in Contraction(dot, a, b).c_strides


def _rebuild(jaxpr: Jaxpr) -> Jaxpr:
    env: dict[Var, Atom] = {}
    eqns: list[Eqn] = []
    constvars, consts = list(jaxpr.constvars), list(jaxpr.consts)
    changed = False
    returning = _unsplit_reductions(jaxpr)
    for eqn in jaxpr.eqns:
        ins = [a if type(a) is Literal else env.get(a, a) for a in eqn.invars]
        rebuilt = None if eqn in returning else _decomposition_of(eqn)
        if rebuilt is None:
            inner = _expand_params(eqn)
            if inner is not eqn.params or env:
                eqn = eqn.replace(invars=ins, params=inner)
                changed = True
            eqns.append(eqn)
            continue
        changed = True
        with with_source(eqn.source):
            staged = expand(dce(stage(rebuilt, [a.aval for a in eqn.invars])))
        local: dict[Var, Atom] = dict(zip(staged.invars, ins))
        constvars += staged.constvars
        consts += staged.consts
        eqns += substitute(staged.eqns, local)
        for var, atom in zip(eqn.outvars, staged.outvars):
            env[var] = atom if type(atom) is Literal else local.get(atom, atom)
    if not changed:
        return jaxpr
    outvars = [a if type(a) is Literal else env.get(a, a) for a in jaxpr.outvars]
    return dce(cse(Jaxpr(constvars, consts, jaxpr.invars, outvars, eqns, name=jaxpr.name)))


def _unsplit_reductions(jaxpr: Jaxpr) -> set[Eqn]:
    """Return reductions over outer dims whose results are used together with their operands, strip by strip, and the reductions of
    values computed there; these are not split because one kernel computes all."""
    origins: dict[Var, set[Eqn]] = {}
    # values computed in a second pass over rows -> the reduced dims
    again: dict[Var, set[tuple[int, ...]]] = {}
    unsplit: set[Eqn] = set()
    for eqn in jaxpr.eqns:
        kind, read = lowering_kind(eqn), [a for a in eqn.invars if type(a) is not Literal]
        if kind is LoweringKind.REDUCE and stays_in_strips(
            eqn.invars[0].aval.shape, reduced_dims(eqn)
        ):
            origins[eqn.outvars[0]] = {eqn}
            if any(reduced_dims(eqn) in again.get(a, ()) for a in read):
                unsplit.add(eqn)
        elif kind is LoweringKind.PULL:
            mine = set().union(*[origins.get(a, ()) for a in read])
            shape = eqn.outvars[0].aval.shape
            back = {e for e in mine if e.invars[0].aval.shape == shape}
            unsplit |= back
            if mine - back:
                origins[eqn.outvars[0]] = mine - back
            again[eqn.outvars[0]] = {reduced_dims(e) for e in back}.union(
                *[again.get(a, ()) for a in read if a.aval.shape == shape]
            )
    return unsplit


def _expand_params(eqn: Eqn) -> dict:
    """Return the parameters of an equation, with programs among them decomposed."""
    if lowering_kind(eqn) is not LoweringKind.REGION:
        return eqn.params
    return map_jaxprs(eqn.params, lambda jaxpr: jaxpr.memo("expanded", lambda: expand(jaxpr)))


def _decomposition_of(eqn: Eqn):
    """Return a function that computes the results of an equation by other ops; None if the equation is not decomposed."""
    op = eqn.primitive
    if isinstance(op, ElementwiseOp) and op.on_complex and is_complex(eqn.invars[0].aval.dtype):
        compose = getattr(complex_functions, op.on_complex)
        return lambda x: [compose(x)]
    if isinstance(op, LibraryOp) and op.compiled is not None:
        return op.compiled(eqn)
    if isinstance(op, ConvolutionOp) and _is_by_parts(eqn):
        from weft._engine.compiler.rewrite.split_products import split_convolution

        return split_convolution(eqn)
    kind = lowering_kind(eqn)
    if kind is LoweringKind.EXPAND:
        fn, params = eqn.primitive.lower.fn, eqn.params
        has_multiple_results = eqn.primitive.multiple_results
        return lambda *args: (
            list(fn(*args, **params)) if has_multiple_results else [fn(*args, **params)]
        )
    if kind is LoweringKind.CONTRACT and "permutation" not in eqn.params:
        return _rebuild_dot(eqn)
    if kind is LoweringKind.REDUCE:
        return _split_reduction(eqn)
    if kind is LoweringKind.FFT and _is_real_convolution(eqn):
        from weft._engine.compiler.rewrite.chirp_transforms import complex_transform

        return complex_transform(eqn)
    if eqn.primitive.moves == "concatenate":
        return decompose_concatenation(eqn)
    return None


def _is_real_convolution(eqn: Eqn) -> bool:
    """Return whether an FFT of one dim, from or to real numbers, is computed as a convolution."""
    if len(eqn.params["fft_lengths"]) != 1:
        return False
    from weft._engine.compiler.kernels.fft_plan import is_matrix_convolution

    source, out = eqn.invars[0].aval, eqn.outvars[0].aval
    rows, (n,) = math.prod(source.shape[:-1]), eqn.params["fft_lengths"]
    is_real = not (is_complex(source.dtype) and is_complex(out.dtype))
    return is_real and is_matrix_convolution(rows, n)


def _rebuild_dot(eqn: Eqn):
    lhs, rhs = (a.aval for a in eqn.invars)
    out = eqn.outvars[0].aval
    acc_dtype = sum_dtype(lhs.dtype, rhs.dtype, out.dtype)
    dims = _ProductDims(eqn)
    # One row by one column, in any batch, is a reduction of products, which reads its operands in place. One column by one row
    # has no sum: the products are inlined where they are read.
    is_matmul = dims.inner > 1 and dims.rows * dims.columns > 1
    if is_matmul and not _is_tiny_product(acc_dtype, dims.rows, dims.inner, dims.columns):
        return _split_matmul(eqn, dims) or _convert_gemm(eqn, acc_dtype)
    contracted = tuple(range(out.ndim, out.ndim + len(dims.lengths)))
    shape = (*out.shape, *dims.lengths)

    def product(a, b):
        # Elements are sliced from the broadcast operand, so that an expensive operand is stored once as a whole.
        a = _broadcast(_convert(a, acc_dtype), shape, dims.places_of_lhs(contracted))
        b = _broadcast(_convert(b, acc_dtype), shape, dims.places_of_rhs(contracted))
        if 0 < dims.inner <= _UNROLLED_SUM:
            places = itertools.product(*[range(n) for n in dims.lengths])
            terms = [registry["mul"].bind(_take(a, place), _take(b, place)) for place in places]
            total = functools.reduce(registry["add"].bind, terms)
        else:
            total = registry["reduce_sum"].bind(registry["mul"].bind(a, b), axes=contracted)
        return [_convert(total, out.dtype)]

    return product


class _ProductDims:
    """The dims of a matmul: batch, free and contracted dims of both operands, and their numbers of elements."""

    def __init__(self, eqn: Eqn) -> None:
        lhs, rhs = (a.aval for a in eqn.invars)
        self.contract, self.batch = eqn.params["dimension_numbers"]
        self.free = [
            [d for d in range(aval.ndim) if d not in contract and d not in batch]
            for aval, contract, batch in zip((lhs, rhs), self.contract, self.batch)
        ]
        self.lengths = tuple([lhs.shape[d] for d in self.contract[0]])
        self.inner = math.prod(self.lengths)
        self.rows, self.columns = (
            math.prod(aval.shape[d] for d in free) for aval, free in zip((lhs, rhs), self.free)
        )

    def places_of_lhs(self, contracted: tuple[int, ...]) -> list[int]:
        """Return the position of each dim of the left operand in the order batch dims, rows, columns, `contracted` dims."""
        dims = [*self.batch[0], *self.free[0]]
        return _in_order(
            dict(zip(dims, range(len(dims)))) | dict(zip(self.contract[0], contracted))
        )

    def places_of_rhs(self, contracted: tuple[int, ...]) -> list[int]:
        """Return the position of each dim of the right operand in the same order."""
        batch, columns = self.batch[1], self.free[1]
        first = len(batch) + len(self.free[0])
        places = dict(zip(batch, range(len(batch)))) | dict(zip(self.contract[1], contracted))
        return _in_order(places | {d: first + i for i, d in enumerate(columns)})


def _in_order(places: dict[int, int]) -> list[int]:
    return [places[d] for d in range(len(places))]


def _is_by_parts(eqn: Eqn) -> bool:
    """Return whether float32 operands of a product are multiplied by bfloat16 parts, on a tile unit
    that is faster so."""
    products = getattr(eqn.params["precision"], "bf16_products", 0)
    return 0 < products < hooks.vector_unit().tile_speeds.get("bf16", 0)


def _split_matmul(eqn: Eqn, dims: _ProductDims):
    """Return a function that multiplies bfloat16 parts of float32 operands; None if the matmul stays whole."""
    if not _is_by_parts(eqn):
        return None
    from weft._engine.compiler.rewrite.split_products import split_matmul

    return split_matmul(eqn, dims.rows, dims.columns)


def _convert_gemm(eqn: Eqn, wide: np.dtype):
    """Return a function for the matmul in dtypes with a GEMM; None if its dtypes have one."""
    lhs, rhs = (a.aval.dtype for a in eqn.invars)
    out = eqn.outvars[0].aval.dtype
    if _has_gemm(lhs, rhs, out):
        return None
    bind, params = eqn.primitive.bind, {**eqn.params, "preferred_element_type": wide}
    if _has_gemm(lhs, rhs, wide):
        return lambda a, b: [_convert(bind(a, b, **params), out)]
    return lambda a, b: [_convert(bind(_convert(a, wide), _convert(b, wide), **params), out)]


def _is_tiny_product(dtype: np.dtype, rows: int, inner: int, columns: int) -> bool:
    """Return whether a matmul of one batch element is cheaper as multiply and sum than as a GEMM."""
    if inner * rows * columns <= _TINY_PRODUCT:
        return True
    # Many rows by a tiny matrix. Strided complex numbers are slow to load one by one; a GEMM packs them.
    return not is_complex(dtype) and inner * max(inner, min(rows, columns)) <= _TINY_ROW_PRODUCT


def _take(x, place: tuple[int, ...]):
    """Return the elements of `x` at index `place` of its last dims, without these dims."""
    shape = typeof(x).shape
    outer = shape[: len(shape) - len(place)]
    start, limit = (*[0] * len(outer), *place), (*outer, *[i + 1 for i in place])
    part = registry["slice"].bind(x, start_indices=start, limit_indices=limit, strides=None)
    return registry["reshape"].bind(part, new_sizes=outer)


def _has_gemm(lhs: np.dtype, rhs: np.dtype, out: np.dtype) -> bool:
    """Return whether there is a GEMM of these dtypes, which accumulates in `sum_dtype`."""
    a, c = type_name(lhs), type_name(out)
    if lhs != rhs or "bool" in (a, c):
        return False
    if a == c:
        return True
    if is_native_integer(lhs) and is_native_integer(out):
        return True
    if a == "f32":
        return c == "f64" or c in HALVES
    return c == "f32" and (a in HALVES or a == "f64" or a in ("i8", "u8"))


def _convert(x, dtype):
    if typeof(x).dtype == dtype:
        return x
    return registry["convert_element_type"].bind(x, new_dtype=dtype, weak_type=False, sharding=None)


def _broadcast(x, shape: tuple[int, ...], dims: list[int]):
    """Broadcast `x` to `shape`, with its dim d at position dims[d] (in any order)."""
    order = sorted(range(len(dims)), key=lambda d: dims[d])
    if order != list(range(len(dims))):
        x = registry["transpose"].bind(x, permutation=tuple(order))
    return registry["broadcast_in_dim"].bind(
        x, shape=shape, broadcast_dimensions=tuple(sorted(dims))
    )


def _split_reduction(eqn: Eqn):
    """Return a function that computes a large reduction with few results in two steps; None if it is not split."""
    (atom,) = eqn.invars
    shape, axes, dtype = atom.aval.shape, tuple(sorted(eqn.params["axes"])), atom.aval.dtype
    if atom.aval.size < _REDUCTION_SPLIT_FROM or not axes or list(eqn.params) != ["axes"]:
        return None
    bind, half = eqn.primitive.bind, type_name(dtype) in HALVES
    runs = _group_adjacent_dims(shape, axes)
    if len(runs) > 1 and not half:
        other_axes = tuple(a for a in axes if a not in runs[-1])
        return lambda x: [bind(bind(x, axes=runs[-1]), axes=other_axes)]
    outer, split = _outer_part(shape, axes, _choose_part_count(shape, axes))
    return _in_two_steps(eqn, outer, split) if outer or split > 1 else None


def _in_two_steps(eqn: Eqn, kept: tuple[int, ...], split: int):
    """Return a function that reduces in two steps: the first keeps the dims `kept` and `split` parts of the next dim."""
    bind, aval = eqn.primitive.bind, eqn.invars[0].aval
    shape, dtype, axes = aval.shape, aval.dtype, tuple(sorted(eqn.params["axes"]))
    half = type_name(dtype) in HALVES

    def two_steps(x):
        widened = _convert(x, np.dtype(np.float32)) if half else x
        outer, inner = kept, tuple(a for a in axes if a not in kept)
        remainder = None
        if split > 1:
            d = inner[0]
            widened, remainder = _split_equal_parts(widened, d, split)
            remainder = (
                bind(remainder, axes=inner[1:])
                if remainder is not None and inner[1:]
                else remainder
            )
            folded = (*shape[:d], split, shape[d] // split, *shape[d + 1 :])
            widened = registry["reshape"].bind(widened, new_sizes=folded)
            outer, inner = (*kept, d), tuple(a + 1 for a in inner)
        if inner:
            widened = bind(widened, axes=inner)
        if remainder is not None:
            from weft._engine.ops.slicing import concatenate

            widened = concatenate([widened, remainder], outer[-1])
        return [_convert(bind(widened, axes=outer), dtype)]

    return two_steps


def _choose_part_count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Return the number of parts of a reduction that occupies all threads."""
    after = math.prod(shape[axes[-1] + 1 :])
    before = math.prod(shape[: axes[0]])
    if after > 1:
        return _REDUCTION_SPLIT_TASKS // (before * -(-after // _REDUCTION_SPLIT_COLUMNS))
    return _REDUCTION_SPLIT_PARTS // before if before < _REDUCTION_SPLIT_ROWS else 1


def _split_equal_parts(x, d: int, parts: int):
    """Split `x` along dim d into a prefix that `parts` divides and the rest, which may be None."""
    n = typeof(x).shape[d]
    whole = n - n % parts
    if whole == n:
        return x, None
    from weft._engine.ops.slicing import slice_in_dim

    remainder = slice_in_dim(x, whole, n, axis=d)
    return slice_in_dim(x, 0, whole, axis=d), remainder


def _group_adjacent_dims(shape: tuple[int, ...], axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the reduced dims in groups that are adjacent in memory."""
    runs: list[list[int]] = []
    for a in axes:
        if runs and all(shape[d] == 1 for d in range(runs[-1][-1] + 1, a)):
            runs[-1].append(a)
        else:
            runs.append([a])
    return [tuple(r) for r in runs]


def _outer_part(
    shape: tuple[int, ...], axes: tuple[int, ...], want: int
) -> tuple[tuple[int, ...], int]:
    """Return the leading reduced dims that the first step keeps, and the number of parts of the next dim."""
    have, outer_axes = 1, []
    for a in axes:
        if have * 4 > want:
            return tuple(outer_axes), 1
        if have * shape[a] <= 4 * want and len(outer_axes) + 1 < len(axes):
            have *= shape[a]
            outer_axes.append(a)
        else:
            return tuple(outer_axes), _parts(shape[a], want // have)
    return tuple(outer_axes), 1


def _parts(n: int, want: int) -> int:
    """Return the number of parts of n elements: the divisor of n next above `want`, up to 4 times as large, or next below it.

    If there is none, return `want`, so that fewer than `want` elements remain. Return 1 if n is too small."""
    most = min(want, n // 8)
    for candidate in (*range(want, min(4 * want, n // 8) + 1), *range(most, max(most // 4, 3), -1)):
        if n % candidate == 0:
            return candidate
    return most if most > 3 else 1
