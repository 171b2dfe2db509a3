"""`sparsify`: functions of dense arrays applied to sparse arrays.

In:   a function, and arguments; some of them are sparse.
Out:  its results; sparse results are BCOO arrays, or BCSR if all operations keep the indices.
How:  the function is traced for dense arrays of the same shapes, and its program is evaluated: operations on dense values
      unchanged, operations on sparse values by the rules of this module. Any elementwise function of one argument that
      maps 0 to 0 keeps the indices. With tracers, the rules are applied while the function runs.
Next: `ad`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.core.interpret import evaluate_with
from weft._engine.core.pair_trace import PairTrace, run_pairs
from weft._engine.core.primitive import ElementwiseOp
from weft._engine.core.trace import Tracer, current_trace, set_trace, typeof
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.types import ShapedArray
from weft._engine.util import tree
from weft._engine.util.source import api_boundary
from weft.experimental.sparse import products, shapes
from weft.experimental.sparse.api import DENSE
from weft.experimental.sparse.base import is_sparse
from weft.experimental.sparse.bcoo import BCOO
from weft.experimental.sparse.bcsr import BCSR
from weft.experimental.sparse.convolution import bcoo_conv_general_dilated


def as_bcoo(value: Any) -> Any:
    """Convert a sparse array of any format to BCOO; return any other value unchanged."""
    return value.to_bcoo() if is_sparse(value) and not isinstance(value, BCOO) else value


# ---- values in an environment of arrays


class SparsifyValue(NamedTuple):
    """A dense or sparse value, as references to arrays of a `SparsifyEnv`; values with the same `indices_ref` have equal indices."""

    shape: tuple[int, ...]
    data_ref: int | None
    indices_ref: int | None = None
    indptr_ref: int | None = None
    indices_sorted: bool | None = False
    unique_indices: bool | None = False

    ndim = property(lambda self: len(self.shape), doc="Number of dims.")

    def is_sparse(self) -> bool:
        """Return True if the value has indices."""
        return self.indices_ref is not None

    def is_dense(self) -> bool:
        """Return True if the value has no indices."""
        return self.indices_ref is None

    def is_bcoo(self) -> bool:
        """Return True if the value is a BCOO array."""
        return self.is_sparse() and self.indptr_ref is None

    def is_bcsr(self) -> bool:
        """Return True if the value is a BCSR array."""
        return self.indptr_ref is not None


class SparsifyEnv:
    """The arrays that `SparsifyValue`s refer to.

    >>> env = SparsifyEnv()
    >>> value = env.sparse((4,), wnp.array([1., 2.]), wnp.array([[0], [3]]))
    >>> value.data_ref, value.indices_ref, spvalues_to_arrays(env, value)
    (0, 1, BCOO(float32[4], nse=2))
    """

    def __init__(self, bufs: Iterable[Any] = ()):
        self._buffers = [wnp.asarray(each) for each in bufs]

    def _put(self, array: Any, ref: int | None) -> int:
        if ref is not None:
            return ref
        self._buffers.append(wnp.asarray(array))
        return len(self._buffers) - 1

    def data(self, spvalue: SparsifyValue) -> Any:
        """Return the values of the entries, or all values of a dense value."""
        if spvalue.data_ref is None:
            raise RuntimeError("SparsifyEnv.data: the value has none.")
        return self._buffers[spvalue.data_ref]

    def indices(self, spvalue: SparsifyValue) -> Any:
        """Return the indices. RuntimeError for a dense value."""
        if spvalue.indices_ref is None:
            raise RuntimeError("SparsifyEnv.indices: the value is dense.")
        return self._buffers[spvalue.indices_ref]

    def indptr(self, spvalue: SparsifyValue) -> Any:
        """Return the row starts. RuntimeError for a value that is not a BCSR array."""
        if spvalue.indptr_ref is None:
            raise RuntimeError("SparsifyEnv.indptr: the value is no BCSR array.")
        return self._buffers[spvalue.indptr_ref]

    def dense(self, data: Any) -> SparsifyValue:
        """Add an array and return it as a dense value."""
        return self._add(data)

    def sparse(
        self,
        shape: Sequence[int],
        data: Any = None,
        indices: Any = None,
        indptr: Any = None,
        *,
        data_ref: int | None = None,
        indices_ref: int | None = None,
        indptr_ref: int | None = None,
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> SparsifyValue:
        """Return a sparse value of new arrays, or of arrays with the given references."""
        return SparsifyValue(
            tuple(shape),
            self._put(data, data_ref),
            self._put(indices, indices_ref),
            None if indptr is indptr_ref is None else self._put(indptr, indptr_ref),
            indices_sorted,
            unique_indices,
        )

    def _add(self, value: Any, share: bool = False) -> SparsifyValue:
        """Add the arrays of a value; with `share`, reuse equal arrays that are already present."""
        refs = {id(array): ref for ref, array in enumerate(self._buffers)} if share else {}
        if not is_sparse(value):
            value = wnp.asarray(value)
            return SparsifyValue(value.shape, self._put(value, refs.get(id(value))))
        arrays = value.tree_flatten()[0]
        names = ("data_ref", "indices_ref", "indptr_ref")
        return self.sparse(
            value.shape,
            *arrays,
            **{name: refs.get(id(array)) for name, array in zip(names, arrays)},
            indices_sorted=value.indices_sorted,
            unique_indices=value.unique_indices,
        )

    def _get(self, spvalue: SparsifyValue) -> Any:
        if spvalue.is_dense():
            return self.data(spvalue)
        options: dict[str, Any] = {
            "shape": spvalue.shape,
            "indices_sorted": bool(spvalue.indices_sorted),
            "unique_indices": bool(spvalue.unique_indices),
        }
        if spvalue.is_bcsr():
            return BCSR(
                (self.data(spvalue), self.indices(spvalue), self.indptr(spvalue)), **options
            )
        return BCOO((self.data(spvalue), self.indices(spvalue)), **options)


def _is_spvalue(value: Any) -> bool:
    return isinstance(value, SparsifyValue)


def arrays_to_spvalues(spenv: SparsifyEnv, args: Any) -> Any:
    """Add the arrays of a tree of dense, BCOO and BCSR arrays to `spenv`, and return the tree of values."""
    return tree.tree_map(spenv._add, args, is_leaf=is_sparse)


def spvalues_to_arrays(spenv: SparsifyEnv, spvalues: Any) -> Any:
    """Convert a tree of values to dense, BCOO and BCSR arrays: the inverse of `arrays_to_spvalues`."""
    return tree.tree_map(spenv._get, spvalues, is_leaf=_is_spvalue)


def spvalues_to_avals(spenv: SparsifyEnv, spvalues: Any) -> Any:
    """Return the types of the dense arrays that a tree of values represents."""
    return tree.tree_map(
        lambda value: _dense_type(spenv._get(value)), spvalues, is_leaf=_is_spvalue
    )


def sparsify_raw(f: Callable) -> Callable:
    """Transform `f`, a function of dense arrays, into a function of values in a `SparsifyEnv`.

    The returned function takes a `SparsifyEnv`, values, and keyword arguments of `f`. It returns the list of the result
    values, and the structure of their tree; new arrays are added to the environment.
    """

    @functools.wraps(f)
    def wrapped(
        spenv: SparsifyEnv, *spvalues: SparsifyValue, **params: Any
    ) -> tuple[list[SparsifyValue], Any]:
        out_values, structure = _by_program(
            lambda *args: f(*args, **params), [spenv._get(each) for each in spvalues]
        )
        return [spenv._add(each, share=True) for each in out_values], structure

    return wrapped


# ---- evaluation, by a program or by tracers


class SparseTracer(Tracer):
    """A tracer of a dense or sparse value in a function under `sparsify` with `use_tracer=True`."""

    __slots__ = ("aval", "value")

    def __init__(self, trace: SparseTrace, *, spvalue: Any):
        self.owning_trace = trace
        self.aval = _dense_type(spvalue)
        self.value = spvalue

    def describe(self) -> str:
        return f"a value under sparsify, {_kind(self.value)}"

    def __repr__(self) -> str:
        return f"SparseTracer({_kind(self.value)})"


class SparseTrace(PairTrace):
    """The trace that applies the rules for sparse values."""

    __slots__ = ()

    def join(self, first: Any, second: Any = None) -> SparseTracer:
        return SparseTracer(self, spvalue=first)

    def split(self, x: Any) -> tuple[Any, None]:
        return (x.value if isinstance(x, SparseTracer) and x.owning_trace is self else x), None

    def process(self, primitive: Any, args: Sequence, params: dict) -> Any:
        with set_trace(self.outer):
            outs = _bind(primitive, [self.split(x)[0] for x in args], params)
        return (
            [self.join(out) for out in outs] if primitive.multiple_results else self.join(outs[0])
        )


def _dense_type(value: Any) -> ShapedArray:
    return ShapedArray(value.shape, value.dtype) if is_sparse(value) else typeof(value)


@api_boundary
def sparsify(f: Callable, use_tracer: bool = False) -> Callable:
    """Transform `f`, a function of dense arrays, into a function that also accepts sparse arguments.

    `f` is traced to a program, which is evaluated; with `use_tracer`, it is called with tracers that hold the values.
    Keyword arguments are static, except sparse arrays. NotImplementedError for an operation without a sparse rule.

    >>> from weft.experimental import sparse
    >>> product = sparse.sparsify(lambda m, v: 2 * (m.T @ v))
    >>> product(sparse.eye(2), wnp.array([1., 2.])).tolist()
    [2.0, 4.0]
    """
    run = _by_tracers if use_tracer else _by_program

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, treedef = tree.tree_flatten((args, kwargs), is_leaf=is_sparse)
        if wrong := [leaf for leaf in leaves if isinstance(leaf, weft.ShapeDtypeStruct)]:
            raise TypeError(
                f"sparsify: the arguments of `f` must be arrays and numbers, got {wrong[0]!r:.60}."
            )
        positional = len(tree.tree_leaves(args, is_leaf=is_sparse))
        traced = [
            i
            for i, leaf in enumerate(leaves)
            if is_sparse(leaf) or (i < positional and _is_number(leaf))
        ]

        def flat(*values: Any) -> Any:
            whole = list(leaves)
            for i, value in zip(traced, values):
                whole[i] = value
            args, kwargs = tree.tree_unflatten(treedef, whole)
            result = f(*args, **kwargs)
            if wrong := [
                x
                for x in tree.tree_leaves(result, is_leaf=is_sparse)
                if isinstance(x, (str, bytes)) or callable(x)
            ]:
                raise TypeError(
                    f"sparsify: the result of `f` must hold arrays and numbers, got {wrong[0]!r:.60}."
                )
            return result

        results, structure = run(flat, [_runnable(leaves[i]) for i in traced])
        return tree.tree_unflatten(structure, results)

    return wrapped


def _is_number(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or isinstance(leaf, (int, float, complex))


def _by_program(fun: Callable, values: Sequence) -> tuple[list, Any]:
    avals = [
        weft.ShapeDtypeStruct(value.shape, value.dtype) if is_sparse(value) else value
        for value in values
    ]
    program, shape = weft.make_jaxpr(fun, return_shape=True)(*avals)
    return list(map(_valued, _run(program, values))), tree.tree_structure(shape)


def _by_tracers(fun: Callable, values: Sequence) -> tuple[list, Any]:
    structure: list = []

    def flat(*tracers: Any) -> list:
        leaves, treedef = tree.tree_flatten(fun(*tracers), is_leaf=is_sparse)
        structure.append(treedef)
        return leaves

    results, _ = run_pairs(SparseTrace(current_trace()), flat, values, values)
    return list(map(_valued, results)), structure[0]


def _run(program: Any, args: Sequence[Any]) -> list:
    return evaluate_with(
        lambda eqn, operands: _bind(eqn.primitive, operands, eqn.params),
        program,
        list(map(_valued, args)),
    )


def _runnable(arg: Any) -> Any:
    """Convert an argument to a format that the rules support."""
    return arg if isinstance(arg, BCSR) else as_bcoo(arg)


def _valued(arg: Any) -> Any:
    return arg if is_sparse(arg) or hasattr(arg, "dtype") else wnp.asarray(arg)


def _bind(primitive: Any, operands: list, params: dict) -> Sequence[Any]:
    if not any(map(is_sparse, operands)):
        if primitive.name not in _CONTROL or not any(map(is_sparse, _constants(params))):
            outs = primitive.bind(*operands, **params)
            return outs if primitive.multiple_results else [outs]
    rule = _RULES.get(primitive.name)
    if rule is None and primitive.is_call:
        return _run(params["jaxpr"], operands)
    if rule is None and isinstance(primitive, ElementwiseOp) and len(operands) == 1:
        rule = _elementwise
    if rule is None:
        raise NotImplementedError(f"sparse rule for {primitive.name} is not implemented.")
    if rule not in _OF_ANY_FORMAT:
        operands = list(map(as_bcoo, operands))
    outs: Any = rule(primitive, *operands, **params)
    return outs if primitive.multiple_results else [outs]


def _kind(value: Any) -> str:
    return repr(value) if is_sparse(value) else typeof(value).str_short()


def _constants(params: dict) -> list:
    return [
        const for value in params.values() if isinstance(value, Jaxpr) for const in value.consts
    ]


# ---- rules: primitive, operands, parameters -> result


def _elementwise(primitive: Any, mat: Any, **params: Any) -> Any:
    if _maps_zero_to_nonzero(primitive, mat.dtype, params):
        raise NotImplementedError(
            f"sparse rule for {primitive.name} is not implemented because it would result in dense output."
            " Call todense() first."
        )
    mat = mat if _is_linear(primitive) else _unique(mat)
    return _with_data(mat, primitive.bind(mat.data, **params))


def _unique(mat: Any) -> Any:
    """Sum entries with equal indices, keeping the number of entries."""
    return mat if mat.unique_indices else mat.sum_duplicates(nse=mat.nse)


def _integer_pow(primitive: Any, mat: Any, *, y: int) -> Any:
    if y <= 0:
        raise NotImplementedError(
            f"sparse rule for integer_pow with non-positive exponent {y} is not implemented because it would result"
            " in dense output. Call todense() first."
        )
    return _elementwise(primitive, mat, y=y)


def _name(primitive: Any, mat: Any, *, name: str) -> Any:
    return (
        products.to_dense(mat)
        if name == DENSE
        else _with_data(mat, primitive.bind(mat.data, name=name))
    )


def _maps_zero_to_nonzero(primitive: Any, dtype: Any, params: dict) -> bool:
    """Return True if an elementwise function maps 0 to a nonzero value."""
    with np.errstate(all="ignore"):
        value = np.asarray(primitive.reference(np.zeros((), dtype), **params))
    return bool(value != 0)


def _is_linear(primitive: Any) -> bool:
    """Return True if f(a) + f(b) == f(a + b)."""
    return primitive.name in ("neg", "real", "imag", "conj", "copy", "copy_p")


def _mul(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    if is_sparse(x) and is_sparse(y):
        return products.bcoo_multiply_sparse(as_bcoo(x), as_bcoo(y))
    mat, dense = (x, y) if is_sparse(x) else (y, x)
    if not np.ndim(dense):
        return _with_data(
            mat, primitive.bind(mat.data, wnp.broadcast_to(dense, mat.data.shape), **params)
        )
    if np.shape(dense) != mat.shape:
        raise NotImplementedError(
            f"sparsify: a product of shapes {mat.shape} and {np.shape(dense)}."
        )
    mat = as_bcoo(mat)
    return _with_data(mat, products.bcoo_multiply_dense(mat, dense))


def _div(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    if not is_sparse(x) or is_sparse(y):
        raise NotImplementedError("sparsify: div by a sparse array divides by 0.")
    if not np.ndim(y):
        return _with_data(x, primitive.bind(x.data, wnp.broadcast_to(y, x.data.shape), **params))
    x = as_bcoo(x)
    return _with_data(x, products.bcoo_multiply_dense(x, 1 / y))


def _with_data(mat: Any, data: Any) -> Any:
    """Return an array with the format and indices of `mat` and other values."""
    (_, *indices), _ = mat.tree_flatten()
    return type(mat)(
        (data, *indices),
        shape=mat.shape,
        indices_sorted=mat.indices_sorted,
        unique_indices=mat.unique_indices,
    )


def _add(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    if is_sparse(x) and is_sparse(y):
        return products.add(x, y)
    if np.shape(x) != np.shape(y):
        mat, dense = (x, y) if is_sparse(x) else (y, x)
        raise NotImplementedError(
            "Addition between a sparse array X and a dense array Y is not implemented where their shapes differ:"
            f" {mat.shape} and {np.shape(dense)}. Call todense() first."
        )
    return primitive.bind(products.to_dense(x), products.to_dense(y), **params)


def _sub(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    if is_sparse(x) and is_sparse(y):
        return products.add(x, _with_data(y, -y.data))
    return _add(primitive, x, y, **params)


def _pow(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    if is_sparse(y) or np.ndim(y) or isinstance(y, Tracer) or not np.asarray(y) > 0:
        raise NotImplementedError(
            "sparsify: pow of a sparse array needs one known exponent above 0."
        )
    x = _unique(x)
    return _with_data(x, primitive.bind(x.data, wnp.broadcast_to(y, x.data.shape), **params))


def _max(primitive: Any, x: Any, y: Any, **params: Any) -> Any:
    """Return the maximum or minimum with 0, as in a relu."""
    mat, other = (x, y) if is_sparse(x) else (y, x)
    if is_sparse(other) or isinstance(other, Tracer) or np.any(np.asarray(other)):
        raise NotImplementedError(
            f"sparsify: {primitive.name} of a sparse array with anything but 0."
        )
    mat = _unique(mat)
    return _with_data(mat, primitive.bind(mat.data, wnp.zeros_like(mat.data), **params))


def _dot_general(
    primitive: Any,
    x: Any,
    y: Any,
    *,
    dimension_numbers: Any,
    preferred_element_type: Any = None,
    **params: Any,
) -> Any:
    return products.bcoo_dot_general(
        x, y, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type
    )


def _reduce_sum(primitive: Any, mat: BCOO, *, axes: Sequence[int], **params: Any) -> Any:
    total = shapes.reduce_sum(mat, axes)
    return total if total.ndim and total.n_sparse else total.todense() if not total.ndim else total


def _concatenate(primitive: Any, *mats: Any, dimension: int) -> Any:
    if not all(map(is_sparse, mats)):
        raise NotImplementedError(
            "sparsify: concatenate of sparse and dense arrays is not implemented."
        )
    n_batch, n_dense = min(mat.n_batch for mat in mats), min(mat.n_dense for mat in mats)
    return shapes.bcoo_concatenate(
        [mat.update_layout(n_batch=n_batch, n_dense=n_dense) for mat in mats], dimension=dimension
    )


def _broadcast_in_dim(primitive: Any, mat: BCOO, *_: Any, **params: Any) -> Any:
    shape = params["shape"]
    return shapes.bcoo_broadcast_in_dim(
        mat, shape=shape, broadcast_dimensions=params.get("broadcast_dimensions", ())
    )


def _reshape(
    primitive: Any,
    mat: BCOO,
    *_: Any,
    new_sizes: Sequence[int],
    dimensions: Any = None,
    **params: Any,
) -> Any:
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


def _gather(
    primitive: Any,
    mat: BCOO,
    indices: Any,
    *,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    **params: Any,
) -> Any:
    return shapes.bcoo_gather(mat, indices, dimension_numbers, slice_sizes)


def _while(
    primitive: Any,
    *operands: Any,
    cond_jaxpr: Any,
    body_jaxpr: Any,
    cond_nconsts: int,
    body_nconsts: int,
    **_: Any,
) -> list:
    of_cond, body_operands = operands[:cond_nconsts], operands[cond_nconsts:]
    of_body, carry = body_operands[:body_nconsts], list(body_operands[body_nconsts:])
    return lax.while_loop(
        lambda carry: _run(cond_jaxpr, [*of_cond, *carry])[0],
        lambda carry: _match_carries("while_loop", carry, _run(body_jaxpr, [*of_body, *carry])),
        carry,
    )


def _scan(
    primitive: Any,
    *operands: Any,
    jaxpr: Any,
    length: int,
    num_carry: int,
    num_consts: int,
    reverse: bool,
    unroll: Any,
    **_: Any,
) -> list:
    consts, carry_and_xs = operands[:num_consts], list(operands[num_consts:])
    carry, rows = carry_and_xs[:num_carry], carry_and_xs[num_carry:]

    def step(carry: list, row: list) -> tuple[list, list]:
        outs = _run(jaxpr, [*consts, *carry, *row])
        return _match_carries("scan", carry, outs[:num_carry]), outs[num_carry:]

    carry, out = lax.scan(step, carry, rows, length=length, reverse=reverse, unroll=unroll)
    return [*carry, *out]


def _match_carries(name: str, before: list, after: list) -> list:
    """Convert loop carries to the structure of the initial values: the number of entries, and the flags of the indices."""
    for i, (old, new) in enumerate(zip(before, after)):
        if _layout(old) != _layout(new):
            raise TypeError(
                f"sparsify: {name} carries value {i} as {_kind(old)}, and its body returns {_kind(new)}."
                " A sparse value keeps its number of entries."
            )
    return [
        BCOO(
            (new.data, new.indices),
            shape=new.shape,
            indices_sorted=old.indices_sorted,
            unique_indices=old.unique_indices,
        )
        if is_sparse(old)
        else new
        for old, new in zip(before, after)
    ]


def _layout(value: Any) -> Any:
    return (value.nse, value.n_batch, value.n_dense) if is_sparse(value) else None


def _cond(primitive: Any, index: Any, *operands: Any, branches: Sequence[Any], **_: Any) -> list:
    runs = [lambda *args, branch=branch: _run(branch, args) for branch in branches]
    out_types = [weft.eval_shape(run, *operands) for run in runs]
    for i, outs in enumerate(out_types):
        if list(map(_layout, outs)) != list(map(_layout, out_types[0])):
            one, other = (
                ("true_fun", "false_fun") if len(runs) == 2 else (f"branch {i}", "branch 0")
            )
            raise TypeError(
                f"sparsified {one} output must have same type structure as sparsified {other} output, got"
                f" {', '.join(map(_kind, outs))} and {', '.join(map(_kind, out_types[0]))}."
            )
    known = [
        [
            all(getattr(outs[i], flag, False) for outs in out_types)
            for flag in ("indices_sorted", "unique_indices")
        ]
        for i in range(len(out_types[0]))
    ]

    def alike(outs: list) -> list:
        return [
            BCOO(
                (out.data, out.indices),
                shape=out.shape,
                indices_sorted=ordered,
                unique_indices=unique,
            )
            if is_sparse(out)
            else out
            for out, (ordered, unique) in zip(map(as_bcoo, outs), known)
        ]

    return lax.switch(index, [lambda *args, run=run: alike(run(*args)) for run in runs], *operands)


def _conv(primitive: Any, x: Any, y: Any, **params: Any) -> BCOO:
    return bcoo_conv_general_dilated(x, y, **params)


_CONTROL = frozenset({"while", "scan", "cond"})
_RULES: dict[str, Callable] = {
    "mul": _mul,
    "div": _div,
    "add": _add,
    "sub": _sub,
    "add_any": _add,
    "pow": _pow,
    "max": _max,
    "min": _max,
    "integer_pow": _integer_pow,
    "dot_general": _dot_general,
    "reduce_sum": _reduce_sum,
    "concatenate": _concatenate,
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "squeeze": _squeeze,
    "rev": _rev,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "while": _while,
    "scan": _scan,
    "cond": _cond,
    "name": _name,
    "conv_general_dilated": _conv,
}
#: rules that accept BCSR arrays without conversion
_OF_ANY_FORMAT = frozenset({_elementwise, _integer_pow, _mul, _div, _name})
