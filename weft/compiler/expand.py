"""Composite operations rebuilt from others, and the shapes of work that kernels want.

In, out: jaxprs. Composites (`ExpandSpec`) become the equations that define them; matmuls that no matmul kernel takes
become products and sums; a reduction to few elements is split in two, so that its first part has rows to share out.
"""

from __future__ import annotations

import math

from weft.compiler.classify import treatment
from weft.core.primitive import registry
from weft.core.stage import stage
from weft.ir.build import HALVES, type_name
from weft.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, subjaxprs
from weft.ir.rewrite import cse, dce, inline_calls

SPLIT_SIZE = 1 << 16       # elements from which a reduction to few rows is split
FEW_ROWS = 32
PARTS = 128


def expand(jaxpr: Jaxpr) -> Jaxpr:
    """Rebuild composites, at every depth of control flow."""
    jaxpr = inline_calls(jaxpr)
    env: dict[Var, Atom] = {}
    eqns: list[Eqn] = []
    constvars, consts = list(jaxpr.constvars), list(jaxpr.consts)
    changed = False
    for eqn in jaxpr.eqns:
        ins = [a if type(a) is Literal else env.get(a, a) for a in eqn.invars]
        rebuilt = _rebuilt(eqn)
        if rebuilt is None:
            inner = _inside(eqn)
            if inner is not eqn.params or env:
                eqn = eqn.replace(invars=ins, params=inner)
                changed = True
            eqns.append(eqn)
            continue
        changed = True
        staged = stage(rebuilt, [a.aval for a in eqn.invars])
        staged = expand(dce(staged))
        local: dict[Var, Atom] = dict(zip(staged.invars, ins))
        for var, value in zip(staged.constvars, staged.consts):
            constvars.append(var)
            consts.append(value)
        for inner_eqn in staged.eqns:
            read = [a if type(a) is Literal else local.get(a, a) for a in inner_eqn.invars]
            eqns.append(inner_eqn.replace(invars=read))
        for var, atom in zip(eqn.outvars, staged.outvars):
            env[var] = atom if type(atom) is Literal else local.get(atom, atom)
    if not changed:
        return jaxpr
    outvars = [a if type(a) is Literal else env.get(a, a) for a in jaxpr.outvars]
    return dce(cse(Jaxpr(constvars, consts, jaxpr.invars, outvars, eqns, name=jaxpr.name)))


def _inside(eqn: Eqn) -> dict:
    """Parameters with the jaxprs among them expanded."""
    if treatment(eqn) != "region" or not any(True for _ in subjaxprs(eqn.params)):
        return eqn.params
    params = {}
    for key, value in eqn.params.items():
        if isinstance(value, Jaxpr):
            value = value.memo("expanded", lambda value=value: expand(value))
        elif isinstance(value, tuple) and any(isinstance(v, Jaxpr) for v in value):
            value = tuple(v.memo("expanded", lambda v=v: expand(v)) if isinstance(v, Jaxpr) else v for v in value)
        params[key] = value
    return params


def _rebuilt(eqn: Eqn):
    """A function of values that gives the equation's results, or None if it stays."""
    how = treatment(eqn)
    if how == "expand":
        fn, params = eqn.primitive.rules["lower"].fn, eqn.params
        many = eqn.primitive.multiple_results
        return lambda *args: list(fn(*args, **params)) if many else [fn(*args, **params)]
    if how == "contract":
        return _rebuilt_dot(eqn)
    if how == "reduce":
        return _split_reduction(eqn)
    return None


def _rebuilt_dot(eqn: Eqn):
    lhs, rhs = (a.aval for a in eqn.invars)
    out = eqn.outvars[0].aval
    in_type, other, out_type = type_name(lhs.dtype), type_name(rhs.dtype), type_name(out.dtype)
    (a_contract, b_contract), (a_batch, b_batch) = eqn.params["dimension_numbers"]
    inner = math.prod(lhs.shape[d] for d in a_contract)
    odd = in_type != other or "bool" in (in_type, out_type) or ("c" in in_type and in_type != out_type) or (
        in_type in HALVES and out_type not in (in_type, "f32"))
    if not odd and inner and out.size > 1:
        return None

    def product(a, b):
        wide = _sum_dtype(lhs.dtype, rhs.dtype, out.dtype)
        a, b = _convert(a, wide), _convert(b, wide)
        a_free = [d for d in range(lhs.ndim) if d not in a_contract and d not in a_batch]
        b_free = [d for d in range(rhs.ndim) if d not in b_contract and d not in b_batch]
        sizes = ([lhs.shape[d] for d in a_batch] + [lhs.shape[d] for d in a_free] + [rhs.shape[d] for d in b_free]
                 + [lhs.shape[d] for d in a_contract])
        place_a = {d: i for i, d in enumerate([*a_batch, *a_free])}
        place_b = {d: i for i, d in enumerate(b_batch)}
        place_b.update({d: len(a_batch) + len(a_free) + i for i, d in enumerate(b_free)})
        for i, (x, y) in enumerate(zip(a_contract, b_contract)):
            place_a[x] = place_b[y] = out.ndim + i
        spread = lambda x, place, n: _broadcast(x, tuple(sizes), [place[d] for d in range(n)])
        terms = registry["mul"].bind(spread(a, place_a, lhs.ndim), spread(b, place_b, rhs.ndim))
        axes = tuple(range(out.ndim, len(sizes)))
        return [_convert(registry["reduce_sum"].bind(terms, axes=axes) if axes else terms, out.dtype)]

    return product


def _sum_dtype(lhs, rhs, out):
    import numpy as np
    if out == np.bool_:
        return np.dtype(np.int32)
    return np.dtype(np.float32) if type_name(out) in HALVES else out


def _convert(x, dtype):
    from weft.core.trace import typeof
    if typeof(x).dtype == dtype:
        return x
    return registry["convert_element_type"].bind(x, new_dtype=dtype, weak_type=False, sharding=None)


def _broadcast(x, shape: tuple[int, ...], dims: list[int]):
    """`x` spread over `shape`, its dim d at position dims[d] (in any order)."""
    order = sorted(range(len(dims)), key=lambda d: dims[d])
    if order != list(range(len(dims))):
        x = registry["transpose"].bind(x, permutation=tuple(order))
    return registry["broadcast_in_dim"].bind(x, shape=shape, broadcast_dimensions=tuple(sorted(dims)))


def _split_reduction(eqn: Eqn):
    """A large reduction to few elements in two steps, or None. The first step keeps PARTS or so rows."""
    (atom,) = eqn.invars
    shape, axes = atom.aval.shape, tuple(sorted(eqn.params["axes"]))
    combine = eqn.primitive.rules["lower"].combine
    if atom.aval.size < SPLIT_SIZE or not axes or combine.startswith("arg") or list(eqn.params) != ["axes"]:
        return None
    kept = [d for d in range(len(shape)) if d not in axes]
    rows = math.prod(shape[d] for d in kept)
    if type_name(atom.aval.dtype) in HALVES:
        return None
    bind = eqn.primitive.bind
    if rows >= FEW_ROWS and (axes[0] > 0 or all(a > (kept or [-1])[-1] for a in axes)):
        return None
    if rows >= 4096 and axes[0] == 0 and len(axes) == 1 and shape[0] < 256:
        return None
    # a run of leading dims among the reduced ones is split, at a dim boundary if one fits, else inside a dim
    d = axes[0]
    n = shape[d]
    parts = _divisor(n, PARTS if axes[0] == 0 or rows < FEW_ROWS else 1)
    if parts <= 1 or (parts == n and len(axes) == 1):
        return None
    if parts == n:
        rest = tuple(a - 1 if a > d else a for a in axes[1:])
        inner = axes[1:]
        first = d - sum(a < d for a in inner)
        return lambda x: [bind(bind(x, axes=inner), axes=(first,))] if rest or inner else [bind(x, axes=axes)]

    def split(x):
        folded = registry["reshape"].bind(x, new_sizes=(*shape[:d], parts, n // parts, *shape[d + 1:]))
        inner = tuple([d + 1] + [a + 1 for a in axes[1:]])
        return [bind(bind(folded, axes=inner), axes=(d,))]

    return split


def _divisor(n: int, want: int) -> int:
    """The divisor of n nearest to `want` from below or up to four times it; n itself if it is not large."""
    if n <= 4 * want:
        return n
    for candidate in range(want, 4 * want + 1):
        if n % candidate == 0:
            return candidate
    for candidate in range(want, 7, -1):
        if n % candidate == 0:
            return candidate
    return 1
