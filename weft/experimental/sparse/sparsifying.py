"""Functions of dense arrays, run on sparse ones: `sparsify`, and derivatives for arguments that are sparse.

In:   a function, and arguments of which some are sparse.
Out:  its results; those that the operations make sparse are BCOO arrays.
How:  the function is traced for dense arrays of the same shapes, and its program is run operation by operation: those on dense values
      as they are, those on sparse values by the rules of this module. An elementwise function of one argument that maps 0 to 0
      keeps the indices, whatever its name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.core.interpret import evaluate_by
from weft.core.trace import Tracer, typeof
from weft.experimental.sparse import products, shapes
from weft.experimental.sparse.base import JAXSparse, apply
from weft.experimental.sparse.bcoo import BCOO, bcoo_sum_duplicates
from weft.ir.jaxpr import Jaxpr
from weft.util import tree
from weft.util.source import api_boundary


def _is_sparse(value: Any) -> bool:
    return isinstance(value, JAXSparse)


def as_bcoo(value: Any) -> Any:
    """A sparse array of any format as BCOO; anything else as it is."""
    return value.to_bcoo() if _is_sparse(value) and not isinstance(value, BCOO) else value


class SparseTracer(Tracer):
    """The class of tracers that hold sparse values. There are none: `sparsify` runs a program instead."""


@api_boundary
def sparsify(f: Callable, use_tracer: bool = False) -> Callable:
    """`f`, which was written for dense arrays, for arguments of which some are sparse.

    `use_tracer` makes no difference. The returned function raises NotImplementedError for an operation that has no sparse rule.

    >>> from weft.experimental import sparse
    >>> product = sparse.sparsify(lambda m, v: 2 * (m.T @ v))
    >>> product(sparse.eye(2), wnp.array([1., 2.])).tolist()
    [2.0, 4.0]
    """
    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, treedef = tree.tree_flatten((args, kwargs), is_leaf=_is_sparse)
        traced = [i for i, leaf in enumerate(leaves)
                  if _is_sparse(leaf) or hasattr(leaf, "dtype") or isinstance(leaf, (int, float, complex))]
        avals = [weft.ShapeDtypeStruct(leaf.shape, leaf.dtype) if _is_sparse(leaf) else leaf for leaf in (leaves[i] for i in traced)]

        def flat(*values: Any) -> Any:
            whole = list(leaves)
            for i, value in zip(traced, values):
                whole[i] = value
            args, kwargs = tree.tree_unflatten(treedef, whole)
            return f(*args, **kwargs)

        program, shape = weft.make_jaxpr(flat, return_shape=True)(*avals)
        found = _run(program, [as_bcoo(leaves[i]) for i in traced])
        return tree.tree_unflatten(tree.tree_structure(shape), found)

    return wrapped


def _run(program: Any, args: Sequence[Any]) -> list:
    return evaluate_by(_bind, program, [_unwrapped(arg) for arg in args])


def _unwrapped(arg: Any) -> Any:
    return arg if _is_sparse(arg) or hasattr(arg, "dtype") else wnp.asarray(arg)


def _bind(eqn: Any, operands: list) -> Sequence[Any]:
    primitive, params = eqn.primitive, eqn.params
    if not any(map(_is_sparse, operands)):
        if primitive.name not in _CONTROL or not any(map(_is_sparse, _constants(params))):
            outs = primitive.bind(*operands, **params)
            return outs if primitive.multiple_results else [outs]
    rule = _RULES.get(primitive.name)
    if rule is None and primitive.attrs.get("call_like"):
        return _run(params["jaxpr"], operands)
    if rule is None and primitive.kind == "elementwise" and len(operands) == 1:
        rule = _elementwise
    if rule is None:
        raise NotImplementedError(f"sparsify: {primitive.name} has no rule for sparse operands"
                                  f" ({', '.join(_kind(each) for each in operands)}). Call todense() first.")
    outs: Any = rule(primitive, *operands, **params)
    return outs if primitive.multiple_results else [outs]


def _kind(value: Any) -> str:
    return repr(value) if _is_sparse(value) else typeof(value).str_short()


def _constants(params: dict) -> list:
    return [const for value in params.values() if isinstance(value, Jaxpr) for const in value.consts]


# ---- rules: primitive, operands, parameters -> result

def _elementwise(primitive: Any, mat: BCOO, **params: Any) -> BCOO:
    if _at_zero(primitive, mat.dtype, params):
        raise NotImplementedError(f"sparsify: {primitive.name} of 0 is not 0, so that the result would be dense. Call todense() first.")
    if not mat.unique_indices and not _is_linear(primitive):
        mat = bcoo_sum_duplicates(mat, nse=mat.nse)
    return BCOO((primitive.bind(mat.data, **params), mat.indices), shape=mat.shape, indices_sorted=mat.indices_sorted,
                unique_indices=mat.unique_indices)


def _at_zero(primitive: Any, dtype: Any, params: dict) -> bool:
    """Whether an elementwise function of 0 is something else."""
    with np.errstate(all="ignore"):
        value = np.asarray(primitive.rule("reference")(np.zeros((), dtype), **params))
    return bool(value != 0)


def _is_linear(primitive: Any) -> bool:
    """Whether f(a) + f(b) is f(a + b)."""
    return primitive.name in ("neg", "real", "imag", "conj", "copy", "copy_p")


def _mul(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    if _is_sparse(x) and _is_sparse(y):
        return products.bcoo_multiply_sparse(x, y)
    mat, dense = (x, y) if _is_sparse(x) else (y, x)
    if np.ndim(dense) and np.shape(dense) != mat.shape:
        raise NotImplementedError(f"sparsify: a product of shapes {mat.shape} and {np.shape(dense)}.")
    return _with_data(mat, products.bcoo_multiply_dense(mat, dense))


def _div(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    if not _is_sparse(x) or _is_sparse(y):
        raise NotImplementedError("sparsify: div by a sparse array divides by 0.")
    if not np.ndim(y):
        return _with_data(x, primitive.bind(x.data, wnp.broadcast_to(y, x.data.shape), **params))
    return _with_data(x, products.bcoo_multiply_dense(x, 1 / y))


def _with_data(mat: BCOO, data: Any) -> BCOO:
    return BCOO((data, mat.indices), shape=mat.shape, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


def _add(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    if _is_sparse(x) and _is_sparse(y):
        return products.add(x, y)
    if np.shape(x) != np.shape(y):
        raise NotImplementedError(f"sparsify: a sum of shapes {np.shape(x)} and {np.shape(y)}.")
    return primitive.bind(products.to_dense(x), products.to_dense(y), **params)


def _sub(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    if _is_sparse(x) and _is_sparse(y):
        return products.add(x, _with_data(y, -y.data))
    return _add(primitive, x, y, **params)


def _integer_pow(primitive: Any, mat: BCOO, **params: Any) -> Any:
    return _elementwise(primitive, mat, **params)


def _pow(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    if _is_sparse(y) or np.ndim(y) or isinstance(y, Tracer) or not np.asarray(y) > 0:
        raise NotImplementedError("sparsify: pow of a sparse array needs one known exponent above 0.")
    x = x if x.unique_indices else bcoo_sum_duplicates(x, nse=x.nse)
    return _with_data(x, primitive.bind(x.data, wnp.broadcast_to(y, x.data.shape), **params))


def _max(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    """The maximum or the minimum with 0, as in a relu."""
    mat, other = (x, y) if _is_sparse(x) else (y, x)
    if _is_sparse(other) or isinstance(other, Tracer) or np.any(np.asarray(other)):
        raise NotImplementedError(f"sparsify: {primitive.name} of a sparse array with anything but 0.")
    mat = mat if mat.unique_indices else bcoo_sum_duplicates(mat, nse=mat.nse)
    return _with_data(mat, primitive.bind(mat.data, wnp.zeros_like(mat.data), **params))


def _dot_general(primitive: Any, x: Any, y: Any, *, dimension_numbers: Any, preferred_element_type: Any = None, **params: Any) -> Any:
    return products.bcoo_dot_general(x, y, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type)


def _reduce_sum(primitive: Any, mat: BCOO, *, axes: Sequence[int], **params: Any) -> Any:
    found = shapes.bcoo_reduce_sum(mat, axes=axes)
    return found if found.ndim and found.n_sparse else found.todense() if not found.ndim else found


def _concatenate(primitive: Any, *mats: Any, dimension: int) -> Any:
    if not all(map(_is_sparse, mats)):
        raise NotImplementedError("sparsify: concatenate of sparse and dense arrays.")
    return shapes.bcoo_concatenate(mats, dimension=dimension)


def _broadcast_in_dim(primitive: Any, mat: BCOO, *_: Any, **params: Any) -> Any:
    shape = params["shape"]
    return shapes.bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=params.get("broadcast_dimensions", ()))


def _reshape(primitive: Any, mat: BCOO, *_: Any, new_sizes: Sequence[int], dimensions: Any = None, **params: Any) -> Any:
    return shapes.bcoo_reshape(mat, new_sizes=new_sizes, dimensions=dimensions)


def _transpose(primitive: Any, mat: BCOO, *, permutation: Sequence[int]) -> Any:
    return shapes.bcoo_transpose(mat, permutation=permutation)


def _slice(primitive: Any, mat: BCOO, **params: Any) -> Any:
    return shapes.bcoo_slice(mat, **params)


def _squeeze(primitive: Any, mat: BCOO, *, dimensions: Sequence[int]) -> Any:
    return shapes.bcoo_squeeze(mat, dimensions=dimensions)


def _rev(primitive: Any, mat: BCOO, *, dimensions: Sequence[int]) -> Any:
    return shapes.bcoo_rev(mat, dimensions)


def _dynamic_slice(primitive: Any, mat: BCOO, *starts: Any, slice_sizes: Sequence[int]) -> Any:
    return shapes.bcoo_dynamic_slice(mat, starts, slice_sizes)


def _gather(primitive: Any, mat: BCOO, indices: Any, *, dimension_numbers: Any, slice_sizes: Sequence[int], **params: Any) -> Any:
    return shapes.bcoo_gather(mat, indices, dimension_numbers, slice_sizes)


def _while(primitive: Any, *operands: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int, **_: Any) -> list:
    of_cond, rest = operands[:cond_nconsts], operands[cond_nconsts:]
    of_body, carry = rest[:body_nconsts], list(rest[body_nconsts:])
    return lax.while_loop(lambda carry: _run(cond_jaxpr, [*of_cond, *carry])[0],
                          lambda carry: _alike("while_loop", carry, _run(body_jaxpr, [*of_body, *carry])), carry)


def _scan(primitive: Any, *operands: Any, jaxpr: Any, length: int, num_carry: int, num_consts: int, reverse: bool, unroll: Any,
          **_: Any) -> list:
    consts, rest = operands[:num_consts], list(operands[num_consts:])
    carry, rows = rest[:num_carry], rest[num_carry:]

    def step(carry: list, row: list) -> tuple[list, list]:
        outs = _run(jaxpr, [*consts, *carry, *row])
        return _alike("scan", carry, outs[:num_carry]), outs[num_carry:]

    carry, out = lax.scan(step, carry, rows, length=length, reverse=reverse, unroll=unroll)
    return [*carry, *out]


def _alike(name: str, before: list, after: list) -> list:
    """What a loop carries keeps its structure: the number of entries, and what is known of the indices."""
    for i, (old, new) in enumerate(zip(before, after)):
        if _layout(old) != _layout(new):
            raise TypeError(f"sparsify: {name} carries value {i} as {_kind(old)}, and its body returns {_kind(new)}."
                            " A sparse value keeps its number of entries.")
    return [BCOO((new.data, new.indices), shape=new.shape, indices_sorted=old.indices_sorted, unique_indices=old.unique_indices)
            if _is_sparse(old) else new for old, new in zip(before, after)]


def _layout(value: Any) -> Any:
    return (value.nse, value.n_batch, value.n_dense) if _is_sparse(value) else None


def _cond(primitive: Any, index: Any, *operands: Any, branches: Sequence[Any], **_: Any) -> list:
    return lax.switch(index, [lambda *args, branch=branch: _run(branch, args) for branch in branches], *operands)


_CONTROL = frozenset({"while", "scan", "cond"})
_RULES: dict[str, Callable] = {
    "mul": _mul, "div": _div, "add": _add, "sub": _sub, "add_any": _add, "pow": _pow, "max": _max, "min": _max, "integer_pow": _integer_pow,
    "dot_general": _dot_general, "reduce_sum": _reduce_sum, "concatenate": _concatenate, "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape, "transpose": _transpose, "slice": _slice, "squeeze": _squeeze, "rev": _rev, "dynamic_slice": _dynamic_slice,
    "gather": _gather, "while": _while, "scan": _scan, "cond": _cond,
}


apply.append(sparsify)


# ---- derivatives

def _derivative(transform: Callable, name: str, doc: str) -> Callable:
    """A transformation of functions of arrays for functions with sparse arguments: derivatives are those of the data."""
    def derived(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

        @functools.wraps(fun)
        def run(*args: Any, **others: Any) -> Any:
            leaves, treedef = tree.tree_flatten([args[i] for i in numbers], is_leaf=_is_sparse)
            data = [leaf.data if _is_sparse(leaf) else leaf for leaf in leaves]

            def of_data(data: list) -> Any:
                whole = list(args)
                sparse = [_replaced(leaf, each) if _is_sparse(leaf) else each for leaf, each in zip(leaves, data)]
                for i, value in zip(numbers, tree.tree_unflatten(treedef, sparse)):
                    whole[i] = value
                return fun(*whole, **others)

            found = transform(of_data, has_aux=has_aux, **kwargs)(data)
            return _rewrapped(name, found, leaves, treedef, isinstance(argnums, int), has_aux)

        return run

    derived.__name__ = derived.__qualname__ = name
    derived.__doc__ = doc
    return derived


def _replaced(mat: Any, data: Any) -> Any:
    children, static = mat.tree_flatten()
    return type(mat).tree_unflatten(static, (data, *children[1:]))


def _rewrapped(name: str, found: Any, leaves: list, treedef: Any, single: bool, has_aux: bool) -> Any:
    def wrap(derivatives: list) -> Any:
        made = [_with_leading(leaf, each) if _is_sparse(leaf) else each for leaf, each in zip(leaves, derivatives)]
        back = tree.tree_unflatten(treedef, made)
        return back[0] if single else tuple(back)

    if name == "value_and_grad":
        value, derivatives = found
        return value, wrap(derivatives)
    if name == "grad":
        return (wrap(found[0]), found[1]) if has_aux else wrap(found)
    outs, aux = found if has_aux else (found, None)
    count = len(leaves)
    wrapped = tree.tree_map(wrap, outs, is_leaf=lambda node: isinstance(node, list) and len(node) == count)
    return (wrapped, aux) if has_aux else wrapped


def _with_leading(mat: Any, data: Any) -> Any:
    """Derivatives of the data as a sparse array; of a jacobian the dims of the result come first, as dims of a batch."""
    more = data.ndim - mat.data.ndim
    if not more:
        return _replaced(mat, data)
    lead = data.shape[:more]
    indices = wnp.broadcast_to(mat.indices, (*lead, *mat.indices.shape))
    return BCOO((data, indices), shape=(*lead, *mat.shape), indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


_SPARSE = " with respect to arguments that may be sparse: the derivative is sparse with the same indices. See `weft.{}`."
grad = _derivative(weft.grad, "grad", "The gradient" + _SPARSE.format("grad") + """

    >>> from weft.experimental import sparse
    >>> sparse.grad(lambda m: (m @ wnp.array([1., 2.])).sum())(sparse.eye(2)).data.tolist()
    [1.0, 2.0]
    """)
value_and_grad = _derivative(weft.value_and_grad, "value_and_grad", "The value and the gradient" + _SPARSE.format("value_and_grad"))
jacfwd = _derivative(weft.jacfwd, "jacfwd", "The Jacobian by forward mode" + _SPARSE.format("jacfwd"))
jacrev = _derivative(weft.jacrev, "jacrev", "The Jacobian by reverse mode" + _SPARSE.format("jacrev"))
jacobian = jacrev
