"""`pallas_call`: a function that runs a kernel, written on references to blocks of arrays, over a grid.

In:   a kernel, the types of results, a grid, and the blocks of operands and results for each
      iteration.
Out:  a function of arrays: one operation that holds the kernel and its program over the grid.
Laws: the kernel is traced once per operand types, to a program on values. `vmap` adds an axis to
      the grid; forward derivatives differentiate the program; there is no reverse mode: wrap the
      function in a `custom_vjp`.
Next: `loops`, the program of a kernel.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from weft._engine.control.call_rules import WholeCall
from weft._engine.control.ref import AbstractRef, Ref
from weft._engine.core.context import current_context
from weft._engine.core.stage import stage
from weft._engine.core.trace import Tracer, extend_axis_env, typeof
from weft._engine.ir.jaxpr import Eqn, Jaxpr
from weft._engine.ir.types import ShapedArray
from weft._engine.pallas.blocks import INDEX, BlockKernel, BlockMapping, map_blocks, place
from weft._engine.pallas.inside import in_grid
from weft._engine.pallas.loops import program_of
from weft._engine.pallas.specs import BlockSpec, GridSpec, no_block_spec, scratch_type
from weft._engine.transforms.batch import to_dim
from weft._engine.util import tree
from weft._engine.util.errors import describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import api_boundary, function_name, user_frame

#: params: jaxpr (the whole program), kernel (the `BlockKernel`, or None for derived programs), name
pallas_call_p = WholeCall("pallas_call", multiple_results=True, only_derivatives=("kernel",))
_generic_jvp, _generic_batch = pallas_call_p.jvp, pallas_call_p.batch


@pallas_call_p.def_type
def _type(*avals: ShapedArray, jaxpr: Jaxpr, **_: Any) -> list[ShapedArray]:
    axes = frozenset().union(*(a.vma for a in avals))
    return [a.update(vma=axes) if axes else a for a in jaxpr.out_avals]


@pallas_call_p.def_jvp
def _jvp(
    primals: Sequence, tangents: Sequence, *, kernel: BlockKernel | None, **params: Any
) -> tuple:
    if kernel is not None and kernel.aliases:
        raise NotImplementedError(
            f"jvp of pallas_call: {kernel.name} has input_output_aliases. Give the function a custom_jvp rule."
        )
    return _generic_jvp(primals, tangents, kernel=None, **params)


@pallas_call_p.def_batch
def _batch(
    axis: Any,
    args: Sequence,
    dims: Sequence,
    *,
    jaxpr: Jaxpr,
    kernel: BlockKernel | None,
    name: str,
) -> tuple:
    traced = 0 if kernel is None else sum(n is None for n in kernel.grid)
    if (
        kernel is None
        or axis.size == 0
        or any(d is not None for d in dims[: traced + kernel.scalars])
    ):
        return _generic_batch(axis, args, dims, jaxpr=jaxpr, kernel=None, name=name)
    lead = traced + kernel.scalars
    aliased = {i for i, _ in kernel.aliases}
    moved = [
        x if d is None and i - traced not in aliased else to_dim(x, d, axis, 0)
        for i, (x, d) in enumerate(zip(args, dims))
    ]
    flags = tuple([d is not None or i - traced in aliased for i, d in enumerate(dims)])
    mapped, program = jaxpr.memo(
        ("pallas batch", axis.size, flags), lambda: _mapped(kernel, axis.size, flags[lead:], moved)
    )
    outs = pallas_call_p.bind(*moved, jaxpr=program, kernel=mapped, name=name)
    return outs, [0] * len(outs)


def _mapped(
    kernel: BlockKernel, size: int, flags: Sequence[bool], args: Sequence
) -> tuple[BlockKernel, Jaxpr]:
    """Return a kernel with one more grid axis, and its program."""
    mapped_kernel = BlockKernel(
        kernel.name,
        (size, *kernel.grid),
        kernel.mapped + 1,
        kernel.body,
        kernel.scalars,
        tuple([m.mapped(size, f) for m, f in zip(kernel.ins, flags)]),
        tuple([m.mapped(size, True) for m in kernel.outs]),
        kernel.scratch,
        kernel.aliases,
        frozenset([0, *(axis + 1 for axis in kernel.parallel)])
        if kernel.parallel
        else kernel.parallel,
        kernel.blank,
    )
    return mapped_kernel, program_of(mapped_kernel, list(map(typeof, args)))


def _no_reverse(name: str) -> ValueError:
    return ValueError(
        describe(
            "grad",
            f"Linearization failed: {name}, a kernel of pallas_call, has no reverse-mode derivative.",
            (),
            user_frame(),
            "A backward pass would need the values that a kernel overwrites in place.",
            "Wrap the call in a custom_vjp whose backward half is another kernel.",
        )
    )


@pallas_call_p.def_partial_eval
def _partial_eval(trace: Any, args: Sequence, params: dict) -> Any:
    raise _no_reverse(params["name"])


def _partial_eval_eqn(eqn: Eqn, mask: Sequence[bool]) -> Any:
    raise _no_reverse(eqn.params["name"])


pallas_call_p.partial_eval_eqn = _partial_eval_eqn


@pallas_call_p.def_transpose
def _transpose(cts: Sequence, *args: Any, **params: Any) -> Any:
    raise _no_reverse(params["name"])


# ---- arguments of a call


def _result_type(x: Any) -> ShapedArray:
    if isinstance(x, AbstractRef):
        x = x.inner_aval
    if hasattr(x, "inner_aval"):
        x = x.inner_aval
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise TypeError(
            f"pallas_call: out_shape holds types with a shape and a dtype, such as ShapeDtypeStruct, got {x!r} of type "
            f"{type(x).__name__}."
        )
    return ShapedArray(tuple(x.shape), x.dtype)


def _is_spec(x: Any) -> bool:
    return x is None or x is no_block_spec or isinstance(x, BlockSpec)


def _specs(specs: Any, values: Any, names: tuple[str, str]) -> list:
    """Return one spec per leaf of a tree of types.

    `specs` must be a prefix of the tree; raise ValueError if it is not.
    """
    if specs is no_block_spec:
        return [no_block_spec] * len(tree.tree_leaves(values))
    try:
        return tree.broadcast_prefix(specs, values, is_leaf=_is_spec)
    except ValueError:
        pass
    rows = list(_differences(specs, values, names, ""))
    raise ValueError(
        describe(
            "pallas_call",
            f"Pytree for `{names[0]}` and `{names[1]}` do not match. There are {quantity(len(rows), 'mismatch')}, including:",
            rows,
            user_frame(),
            f"`{names[0]}` has a BlockSpec for each array, or one for a part of the tree.",
        )
    )


def _differences(specs: Any, values: Any, names: tuple[str, str], path: str) -> Iterator[str]:
    """Yield descriptions of the differences between two trees."""
    where = f"at {path}, " if path else ""
    if _is_spec(specs):
        if not tree.all_leaves([values]):
            yield f"{where}`{names[0]}` is a pytree leaf but `{names[1]}` is a {type(values).__name__}"
        return
    if type(specs) is not type(values):
        yield f"{where}`{names[0]}` is a {type(specs).__name__} but `{names[1]}` is a {type(values).__name__}"
    elif isinstance(specs, (tuple, list)):
        if len(specs) != len(values):
            kind = type(specs).__name__
            yield (
                f"{where}`{names[0]}` is a {kind} of length {len(specs)} but `{names[1]}` is a {kind} of length {len(values)}"
            )
        else:
            for i, (s, g) in enumerate(zip(specs, values)):
                yield from _differences(s, g, names, f"{path}[{i}]")
    elif isinstance(specs, dict):
        if specs.keys() != values.keys():
            yield f"{where}`{names[0]}` has keys {sorted(specs)} but `{names[1]}` has keys {sorted(values)}"
        else:
            for k in specs:
                yield from _differences(specs[k], values[k], names, f"{path}[{k!r}]")
    else:
        yield f"{where}`{names[0]}` and `{names[1]}` are different nodes of type {type(specs).__name__}"


def _check_aliases(
    aliases: Mapping[int, int], ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]
) -> tuple[tuple[int, int], ...]:
    for i, o in aliases.items():
        fact = f"input_output_aliases contains the mapping '{i}:{o}'"
        if not 0 <= i < len(ins):
            raise ValueError(f"{fact} with input index {i} outside the range [0, {len(ins)}).")
        if not 0 <= o < len(outs):
            raise ValueError(f"{fact} with output index {o} outside the range [0, {len(outs)}).")
        if (ins[i].shape, ins[i].dtype) != (outs[o].shape, outs[o].dtype):
            raise ValueError(
                f"{fact} referring to input[{i}] with abstract value {ins[i]}, and to output[{o}] with a different abstract "
                f"value {outs[o]}. Both name one memory."
            )
    return tuple(sorted(aliases.items()))


def _held_arrays(fun: Any) -> list:
    """Return arrays in the closure, the globals or the `partial` arguments of a function."""
    values: list = []
    while isinstance(fun, functools.partial):
        values += [*fun.args, *fun.keywords.values()]
        fun = fun.func
    fun = getattr(fun, "__wrapped__", fun)
    code = getattr(fun, "__code__", None)
    for cell in getattr(fun, "__closure__", None) or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    if code is not None:
        values += [fun.__globals__[name] for name in code.co_names if name in fun.__globals__]
    return [x for x in values if hasattr(x, "shape") and hasattr(x, "dtype")]


def _check_constants(fun: Callable, jaxpr: Jaxpr) -> None:
    """Raise ValueError if a kernel reads arrays that are not its arguments."""
    argument_ids = {id(x) for x in _held_arrays(fun)}
    captured = [c for c in jaxpr.consts if isinstance(c, Tracer) or id(c) in argument_ids]
    if captured:
        types = ", ".join([typeof(c).str_short() for c in captured])
        raise ValueError(
            describe(
                "pallas_call",
                f"The kernel function {place(fun)} captures constants of type {types}.",
                (),
                user_frame(),
                "A kernel reads memory through its references.",
                "Pass each array as an input of the call.",
            )
        )


def _parallel_axes(params: Any, grid: Sequence) -> frozenset[int]:
    """Return the grid axes whose iterations the user declares to be independent."""
    semantics = getattr(params, "dimension_semantics", None) or ()
    return frozenset(
        [
            i
            for i, s in enumerate(semantics[: len(grid)])
            if "parallel" in str(getattr(s, "value", s)).lower()
        ]
    )


def _blank(interpret: Any) -> str:
    """Return the content of uninitialized memory."""
    return "zero" if getattr(interpret, "uninitialized_memory", "nan") == "zero" else "nan"


def _trace(
    fun: Callable,
    spec: GridSpec,
    trees: tuple,
    scalars: Sequence[ShapedArray],
    ins: Sequence[BlockMapping],
    outs: Sequence[BlockMapping],
    scratch: Sequence[ShapedArray],
    single_out: bool,
    blank: str,
) -> Jaxpr:
    """Stage one iteration; see `BlockKernel.body`."""
    arg_tree, out_tree, scratch_tree = trees
    n, counts = len(spec.grid), (len(scalars), len(ins), len(outs), len(scratch))
    avals = [*scalars, *(m.block_aval for m in ins), *(m.block_aval for m in outs), *scratch]

    def run(*xs: Any) -> list:
        refs = [Ref.make(x, argument_name="of a kernel") for x in xs[2 * n :]]
        parts, at = [], 0
        for count in counts:
            parts.append(refs[at : at + count])
            at += count
        args = tree.tree_unflatten(arg_tree, [*parts[0], *parts[1]])
        results = tree.tree_unflatten(out_tree, parts[2])
        more = tree.tree_unflatten(scratch_tree, parts[3])
        sizes = [size if isinstance(size, int) else xs[n + i] for i, size in enumerate(spec.grid)]
        named = [(name, size) for name, size in zip(spec.grid_names, spec.grid) if name is not None]
        kernel_args = (*args, *((results,) if single_out else results))
        with in_grid(xs[:n], sizes, blank), extend_axis_env(named) if named else nullcontext():
            returned = (
                fun(*kernel_args, **more) if isinstance(more, dict) else fun(*kernel_args, *more)
            )
        if returned is not None:
            raise ValueError(
                describe(
                    "pallas_call",
                    f"The kernel function {place(fun)} should return None, it returned {returned!r}.",
                    (),
                    user_frame(),
                    "Results are written to references: out_ref[...] = value.",
                )
            )
        return [r._read() for r in refs]

    jaxpr = stage(run, [INDEX] * (2 * n) + avals, function_name(fun))
    _check_constants(fun, jaxpr)
    return jaxpr


class PallasCall:
    """The function that `pallas_call` returns."""

    def __init__(
        self,
        fun: Callable,
        spec: GridSpec,
        out_shape: Any,
        aliases: Mapping[int, int],
        name: str | None,
        params: Any,
        interpret: Any,
        debug: bool,
    ):
        self.fun, self.spec, self.aliases, self.params, self.debug = (
            fun,
            spec,
            dict(aliases),
            params,
            debug,
        )
        self.__name__ = re.sub(r"\W", "_", name or function_name(fun))
        self.single_out = not isinstance(out_shape, (tuple, list))
        self.out_shape = tuple(out_shape) if isinstance(out_shape, list) else out_shape
        self.blank = _blank(interpret)
        self.known: dict[tuple, tuple[BlockKernel, Jaxpr]] = {}
        self.__wrapped__ = fun

    def __call__(self, *args: Any) -> Any:
        leaves, arg_tree = tree.tree_flatten(args)
        leaves = [x[...] if isinstance(x, Ref) else x for x in leaves]
        grid = [_size(n) for n in self.spec.grid]
        operands = [*(n for n in grid if not isinstance(n, int)), *leaves]
        avals = tuple(map(typeof, operands))
        key = (arg_tree, avals, current_context())
        cached = self.known.get(key)
        if cached is None:
            cached = self.known[key] = self._build_kernel(
                grid, args, arg_tree, avals[len(operands) - len(leaves) :], avals
            )
        kernel, program = cached
        outs = pallas_call_p.bind(*operands, jaxpr=program, kernel=kernel, name=self.__name__)
        return tree.tree_unflatten(tree.tree_structure(self.out_shape), outs)

    def _build_kernel(
        self,
        grid: list,
        args: tuple,
        arg_tree: Any,
        in_avals: Sequence[ShapedArray],
        avals: Sequence[ShapedArray],
    ) -> tuple[BlockKernel, Jaxpr]:
        spec, count = self.spec, self.spec.num_scalar_prefetch
        if len(args) < count:
            raise ValueError(
                f"pallas_call: the grid spec has {count} prefetched scalars, and the call {quantity(len(args), 'argument')}."
            )
        in_avals = [ShapedArray(a.shape, a.dtype) for a in in_avals]
        n = len(tree.tree_leaves(args[:count]))
        out_leaves, out_tree = tree.tree_flatten(self.out_shape)
        results = [_result_type(x) for x in out_leaves]
        aliases = _check_aliases(self.aliases, in_avals, results)
        scratch_leaves, scratch_tree = tree.tree_flatten(
            spec.scratch_shapes, is_leaf=lambda x: hasattr(x, "as_scratch")
        )
        scratch = tuple(map(scratch_type, scratch_leaves))
        in_specs = _specs(spec.in_specs, args[count:], ("in_specs", "inputs"))
        out_specs = _specs(spec.out_specs, self.out_shape, ("out_specs", "out_shape"))
        paths = [f"args{tree.keystr(p)}" for p, _ in tree.tree_flatten_with_path(args)[0]][n:]
        out_paths = [
            f"outputs{tree.keystr(p)}" for p, _ in tree.tree_flatten_with_path(self.out_shape)[0]
        ]
        scalars = in_avals[:n]
        ins = tuple(
            [
                map_blocks(s, a, p, len(grid), scalars)
                for s, a, p in zip(in_specs, in_avals[n:], paths)
            ]
        )
        outs = tuple(
            [
                map_blocks(s, a, p, len(grid), scalars)
                for s, a, p in zip(out_specs, results, out_paths)
            ]
        )
        body = _trace(
            self.fun,
            spec,
            (arg_tree, out_tree, scratch_tree),
            scalars,
            ins,
            outs,
            [a for a, _ in scratch],
            self.single_out,
            self.blank,
        )
        kernel = BlockKernel(
            self.__name__,
            tuple([g if isinstance(g, int) else None for g in grid]),
            0,
            body,
            n,
            ins,
            outs,
            scratch,
            aliases,
            _parallel_axes(self.params, grid),
            self.blank,
        )
        if self.debug:
            print(f"The kernel {self.__name__}:\n{body}")
        return kernel, program_of(kernel, avals)


def _size(n: Any) -> Any:
    """Return a grid size: an integer, or a traced int32 scalar."""
    n_any: Any = n
    if isinstance(n, Tracer):
        aval = typeof(n)
        if aval.shape or aval.dtype.kind not in "iu":
            raise TypeError(
                f"pallas_call: a size of the grid must be an integer scalar, got {aval.str_short()}."
            )
        known = n.concrete()
        return n_any.astype(np.int32) if known is None else int(known)
    if isinstance(n, (bool, float)):
        raise TypeError(f"pallas_call: a size of the grid must be an integer, got {n!r}.")
    return int(n)


@api_boundary
def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any,
    *,
    grid_spec: GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = no_block_spec,
    out_specs: Any = no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] = {},
    debug: bool = False,
    interpret: Any = False,
    name: str | None = None,
    compiler_params: Any = None,
    cost_estimate: Any = None,
    metadata: Mapping[str, str] | None = None,
    backend: Any = None,
) -> Callable[..., Any]:
    """Return a function that runs a kernel once per point of a grid.

    The kernel takes references to blocks of its arguments and results.

    The kernel takes references to the inputs, the outputs and scratch memory, and returns None.
    `out_shape` is a tree of types; `in_specs` and `out_specs` have a `BlockSpec` per array; without
    one, the block is the whole array. `input_output_aliases` maps inputs to outputs that start with
    their values. The grid runs in index order; if index maps give every iteration its own output
    blocks, it runs in parallel. The kernel is compiled for any `interpret`; only the
    `uninitialized_memory` of an `InterpretParams` is used. `debug` prints the program of the
    kernel. The other parameters have no effect.

    Forward-mode derivatives and `vmap` are supported; reverse mode raises ValueError: use
    `custom_vjp`. Raises ValueError if specs, arrays and index maps do not fit, or if the kernel
    reads arrays that are not arguments.

    >>> from weft.experimental import pallas as pl
    >>> def add(x_ref, y_ref, o_ref):
    ...     o_ref[...] = x_ref[...] + y_ref[...]
    >>> rows = pl.BlockSpec((2,), lambda i: (i,))
    >>> x = wnp.arange(6.0)
    >>> pl.pallas_call(add, weft.ShapeDtypeStruct.like(x), grid=(3,), in_specs=[rows, rows], out_specs=rows)(x, x).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    if grid_spec is None:
        grid_spec = GridSpec(grid, in_specs, out_specs, scratch_shapes)
    elif (
        grid != ()
        or in_specs is not no_block_spec
        or out_specs is not no_block_spec
        or scratch_shapes != ()
    ):
        raise ValueError(
            "pallas_call: give either a grid_spec, or grid, in_specs, out_specs and scratch_shapes, not both."
        )
    refuse = getattr(compiler_params, "refuse", None)
    if refuse is not None:
        refuse()
    return PallasCall(
        kernel, grid_spec, out_shape, input_output_aliases, name, compiler_params, interpret, debug
    )
