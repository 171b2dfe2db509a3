"""`shard_map`: map a function over the devices of a mesh, with explicit collectives.

In:   a function of blocks, a mesh, specs for splitting arguments and assembling results.
Out:  a function of whole values. Called on concrete arrays it runs operation by operation, and values inside print per device;
      under a transformation, or in `jit`, its program becomes one operation (`control.shard_map`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

from weft._engine.api.flat import argument_names, signature_of
from weft._engine.api.jit import function_name
from weft._engine.api.shard_map_eager import can_run_eagerly, run_eagerly
from weft._engine.api.shard_map_specs import (
    ShardMapSite,
    call_on_arrays,
    check_devices,
    check_entries,
    check_operand,
    check_result,
    flat_specs,
    has_hi_types,
    is_spec,
    leaf_labels,
)
from weft._engine.control.ref import Ref, any_refs, check_aliases, check_returned, is_ref
from weft._engine.control.shard_map import block_aval, manual_scope, mesh_inside, shard_map_p
from weft._engine.control.staged_body import cast_results_to_vary, stage_body
from weft._engine.core.trace import Tracer, any_tracers, typeof
from weft._engine.ir.explicit import typed_axes
from weft._engine.ir.mesh import AbstractMesh, AxisType, Mesh, current_mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ops.collective_rules import cast_varying
from weft._engine.ops.collectives import first_only, psum
from weft._engine.ops.layout import reshape
from weft._engine.ops.placement import repeat_per_device, reshard, sum_of_terms, terms
from weft._engine.util import tree
from weft._engine.util.record import record, replace
from weft._engine.util.source import api_boundary, wraps


class _Infer:
    """The class of `Infer`: in_specs are inferred from the arguments."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Infer"


Infer = _Infer()
_MISSING: Any = object()


def shard_map(
    f: Callable | None = None,
    mesh: Mesh | AbstractMesh | None = None,
    in_specs: Any = Infer,
    out_specs: Any = _MISSING,
    check_rep: bool | None = None,
    auto: Collection = frozenset(),
    *,
    axis_names: Collection = frozenset(),
    check_vma: bool | None = None,
) -> Callable:
    """Return `f` as a function that every device of the mesh runs on its own blocks of the arguments.

    `in_specs` name, per argument (trees and prefixes of trees), the mesh axes that split each dim; an argument is whole along the
    others. `out_specs` name the dims along which the blocks of a result are assembled; over axes that a spec omits, a
    result must be equal on all devices, and with `check_vma` (formerly `check_rep`) its type must imply it. `axis_names`
    are the manual axes of `f` (all by default; `auto` names the others); the compiler splits values over the rest. The
    mesh may come from the context (`with mesh:`, `set_mesh`). Without `f` the result is a decorator.
    Raises ValueError for specs that do not fit the arguments or results, TypeError for invalid specs.

    >>> from weft.sharding import PartitionSpec as P
    >>> mesh = weft.make_mesh((2,), ('i',), devices=weft.devices()[:2])
    >>> total = weft.shard_map(lambda x: weft.lax.psum(x.sum(), 'i'), mesh=mesh, in_specs=P('i'), out_specs=P())
    >>> float(total(wnp.arange(8.)))
    28.0
    """
    if out_specs is _MISSING:
        raise TypeError(
            "shard_map: out_specs is missing. Pass a PartitionSpec (or a tree of them) for the results."
        )
    if f is None:
        return functools.partial(
            shard_map,
            mesh=mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            check_rep=check_rep,
            auto=auto,
            axis_names=axis_names,
            check_vma=check_vma,
        )
    if not callable(f):
        raise TypeError(f"shard_map: expected a function, got {f!r}.")
    check = check_vma if check_vma is not None else check_rep if check_rep is not None else True
    if isinstance(in_specs, list):
        in_specs = tuple(in_specs)
    options = ShardMapOptions(
        mesh,
        in_specs,
        out_specs,
        _axis_set("axis_names", axis_names),
        _axis_set("auto", auto),
        bool(check),
    )

    @wraps(f)
    @functools.partial(api_boundary, name="shard_map")
    def mapped(*args, **kwargs):
        return _call(f, options, args, kwargs)

    return mapped


@api_boundary
def smap(
    f: Callable | None = None, /, *, in_axes: Any = Infer, out_axes: Any, axis_name: Any
) -> Callable:
    """Apply `shard_map` over one axis of the context mesh, with the dims to split as numbers, like `vmap`.

    >>> with weft.make_mesh((2,), ('i',), devices=weft.devices()[:2]):
    ...     print(weft.smap(lambda x: x + weft.lax.axis_index('i'), in_axes=0, out_axes=0, axis_name='i')(wnp.zeros(4)))
    [0. 0. 1. 1.]
    """
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    to_spec = lambda axes: tree.tree_map(
        lambda d: PartitionSpec() if d is None else PartitionSpec(*[None] * d, axis_name),
        axes,
        is_leaf=lambda x: x is None,
    )
    mesh = current_mesh()
    if in_axes is Infer and mesh is not None and axis_name in mesh.axes_of_type(AxisType.Auto):
        raise TypeError(
            f"smap({function_name(f)}): in_axes was not specified, and axis {axis_name!r} is automatic: types do not include how "
            "arguments are split over it.\n  Pass in_axes, or make the axis explicit."
        )
    in_specs = Infer if in_axes is Infer else to_spec(in_axes)
    return shard_map(f, in_specs=in_specs, out_specs=to_spec(out_axes), axis_names={axis_name})


@record
class ShardMapOptions:
    """The parameters of `shard_map`; with `check`, types track the axes over which values vary."""

    mesh: Any
    in_specs: Any
    out_specs: Any
    axis_names: frozenset
    auto: frozenset
    check: bool

    def prefix(self, count: int) -> tuple:
        """Return `in_specs` with an entry for each of `count` arguments."""
        return self.in_specs if isinstance(self.in_specs, tuple) else (self.in_specs,) * count

    def has_partial(self) -> bool:
        """Return whether a spec has unreduced or reduced axes."""
        specs = tree.tree_leaves((self.in_specs, self.out_specs), is_leaf=is_spec)
        return any(s is not None and s.is_partial for s in specs)


def _call(f: Callable, options: ShardMapOptions, args: tuple, kwargs: dict) -> Any:
    name = function_name(f)
    if kwargs:
        args = _positional(f, args, kwargs, name)
    mesh = _mesh_of(options.mesh, args, name)
    site = ShardMapSite(name, mesh, _manual(mesh, options.axis_names, options.auto, name))
    in_specs = _infer_specs(site, args) if options.in_specs is Infer else options.in_specs
    options = replace(options, mesh=mesh, in_specs=in_specs)
    check_entries(site, in_specs, "in_specs")
    check_entries(site, options.out_specs, "out_specs")
    static = _static(in_specs, args)
    if static:
        return _call_with_statics(f, options, static, args)
    if has_hi_types((in_specs, options.out_specs), args):
        call = lambda g, ins, outs, operands: _call(
            g, replace(options, in_specs=ins, out_specs=outs), operands, {}
        )
        return call_on_arrays(call, f, site, options, args)
    if options.has_partial():
        return _call_on_terms(f, options, site, args)
    if any_refs(tree.tree_leaves(args)):
        return _call_with_refs(f, options, site, args)
    return _call_on_arrays(f, options, site, args)


def _call_with_statics(
    f: Callable, options: ShardMapOptions, static: dict[int, Any], args: tuple
) -> Any:
    """Call a function of the arguments that are not `static`, with the static ones fixed."""

    def on_others(*others):
        remaining = iter(others)
        return f(*[static[i] if i in static else next(remaining) for i in range(len(args))])

    on_others.__name__ = function_name(f)
    others = [i for i in range(len(args)) if i not in static]
    specs = tuple([options.in_specs[i] for i in others])
    return _call(on_others, replace(options, in_specs=specs), tuple([args[i] for i in others]), {})


def _call_on_arrays(f: Callable, options: ShardMapOptions, site: ShardMapSite, args: tuple) -> Any:
    """Call with arrays only: run eagerly on values, or bind the traced program as one operation."""
    mesh = site.mesh
    flat, in_tree = tree.tree_flatten(args)
    labels = [f"argument {name}" for name in argument_names(signature_of(f), args, {})]
    specs = flat_specs(site, options.prefix(len(args)), args, "in_specs", "the arguments")
    for x, spec, label in zip(flat, specs, labels):
        check_operand(site, typeof(x), spec, label)

    def specs_of_results(outs: Sequence, out_tree: Any) -> list[PartitionSpec]:
        """Return the specs of the flat results, after checking the results against them."""
        results = tree.tree_unflatten(out_tree, outs)
        out_specs = flat_specs(site, options.out_specs, results, "out_specs", "the results")
        titles = leaf_labels(results, lambda path: f"result{tree.keystr(path)}")
        for out, spec, title in zip(outs, out_specs, titles):
            check_result(site, typeof(out), spec, title, options.check)
        ranks = [typeof(out).ndim for out in outs]
        return [spec.update(spec.partitions[:n]) for n, spec in zip(ranks, out_specs)]

    params = {
        "mesh": mesh,
        "manual_axes": tuple([a for a in mesh.axis_names if a in site.manual]),
        "check_vma": options.check,
    }
    if can_run_eagerly(flat, mesh):
        for x, label in zip(flat, labels):
            check_devices(site, x, label)
        outs, out_tree = run_eagerly(f, flat, in_tree, specs, specs_of_results, params)
    else:
        outs, out_tree = _bind(f, flat, in_tree, specs, specs_of_results, params, site.name)
    return tree.tree_unflatten(out_tree, outs)


def _static(in_specs: Any, args: Sequence) -> dict[int, Any]:
    """Return the arguments, by position, that are passed to `f` unchanged: their specs are None, and all their leaves are Python values."""
    if not isinstance(in_specs, tuple) or len(in_specs) != len(args):
        return {}
    unsaid = lambda specs: all(s is None for s in tree.tree_leaves(specs, is_leaf=is_spec))
    python = lambda x: (
        (leaves := tree.tree_leaves(x))
        and not any(hasattr(leaf, "dtype") or is_ref(leaf) for leaf in leaves)
    )
    return {i: x for i, (spec, x) in enumerate(zip(in_specs, args)) if unsaid(spec) and python(x)}


def _call_on_terms(f: Callable, options: ShardMapOptions, site: ShardMapSite, args: tuple) -> Any:
    """Call with specs of terms of sums (`unreduced`), and of values whose cotangents are terms (`reduced`).

    The terms of an unreduced value are passed in, and returned, as entries of an additional dim. A reduced value is the same on all
    devices, but typed as varying; an entry for each device makes its cotangents terms.
    """
    leaves, structure = tree.tree_flatten(args)
    specs = flat_specs(site, options.prefix(len(args)), args, "in_specs", "the arguments")
    labels = [f"argument {name}" for name in argument_names(signature_of(f), args, {})]
    for x, spec, label in zip(leaves, specs, labels):
        check_operand(site, typeof(x), spec, label)
    ordered = lambda axes: tuple([a for a in site.mesh.axis_names if a in axes])
    led = lambda spec, *sets: PartitionSpec(
        *[ordered(axes) for axes in sets if axes], *spec.partitions
    )
    result_specs: list[PartitionSpec] = []

    def on_terms(*xs):
        blocks = [_block_of_term(x, s, ordered) if s.is_partial else x for x, s in zip(xs, specs)]
        out = f(*tree.tree_unflatten(structure, blocks))
        result_specs[:] = flat_specs(site, options.out_specs, out, "out_specs", "the results")
        titles = leaf_labels(out, lambda path: f"result{tree.keystr(path)}")
        results, out_tree = tree.tree_flatten(out)
        entries = [
            _return_terms(site, x, spec, title, options.check, ordered)
            for x, spec, title in zip(results, result_specs, titles)
        ]
        return tree.tree_unflatten(out_tree, entries)

    on_terms.__name__ = site.name
    led_options = replace(
        options,
        in_specs=tuple([led(s, s.reduced, s.unreduced) for s in specs]),
        out_specs=tree.tree_map(
            lambda s: s if s is None else led(s, s.unreduced), options.out_specs, is_leaf=is_spec
        ),
    )
    entries = tuple([_with_entries(x, s, site, ordered) for x, s in zip(leaves, specs)])
    leaves, structure = tree.tree_flatten(_call(on_terms, led_options, entries, {}))
    leaves = [
        sum_of_terms(x, ordered(s.unreduced)) if s.unreduced else x
        for x, s in zip(leaves, result_specs)
    ]
    return tree.tree_unflatten(structure, list(map(_add_reduced_axes, leaves, result_specs)))


def _with_entries(x: Any, spec: PartitionSpec, site: ShardMapSite, ordered: Callable) -> Any:
    """Return an argument with a dim for the terms, and one for the copies, according to its spec."""
    if spec.unreduced:
        x = terms(x, site.mesh, ordered(spec.unreduced))
    return repeat_per_device(x, site.mesh, ordered(spec.reduced)) if spec.reduced else x


def _block_of_term(x: Any, spec: PartitionSpec, ordered: Callable) -> Any:
    """Return the block of one device without the dims of terms and copies, with the type of its spec."""
    block = reshape(x, typeof(x).shape[bool(spec.unreduced) + bool(spec.reduced) :])
    block = cast_varying(block, ordered(spec.unreduced), "unreduced")
    return cast_varying(block, ordered(spec.reduced), "reduced")


def _return_terms(
    site: ShardMapSite, x: Any, spec: PartitionSpec, label: str, check: bool, ordered: Callable
) -> Any:
    """Return a result inside in its outer form: a term as an entry of a leading dim, a reduced value from the first device."""
    same = sorted(spec.unreduced - typeof(x).vma, key=str) if check else []
    if same:
        raise ValueError(
            f"shard_map({site.name}): {label} is to be unreduced over {same}, and is the same on all devices there: "
            f"{typeof(x).str_short()}.\n  Make terms of a sum of it with lax.pcast(x, {same}, to='unreduced')."
        )
    x = cast_varying(x, ordered(spec.unreduced | spec.reduced), "varying")
    one_for_all = ordered([a for a in spec.reduced if a in typeof(x).vma])
    x = psum(first_only(x, list(one_for_all)), one_for_all) if one_for_all else x
    return reshape(x, (1, *typeof(x).shape)) if spec.unreduced else x


def _add_reduced_axes(x: Any, spec: PartitionSpec) -> Any:
    """Return a result outside, with the axes over which it is reduced in its type."""
    sharding = typeof(x).explicit
    if sharding is None:
        return x
    axes = spec.reduced & frozenset(sharding.mesh.explicit_axes)
    return (
        reshard(x, sharding.with_spec(sharding.spec.update(reduced=sharding.spec.reduced | axes)))
        if axes
        else x
    )


def _call_with_refs(f: Callable, options: ShardMapOptions, site: ShardMapSite, args: tuple) -> Any:
    """Call with references among the arguments: the final value of each is a result with its spec."""
    prefix = options.prefix(len(args))
    leaves, structure = tree.tree_flatten(args)
    values = [x[...] if is_ref(x) else x for x in leaves]
    specs = flat_specs(
        site, prefix, tree.tree_unflatten(structure, values), "in_specs", "the arguments"
    )
    at = [i for i, x in enumerate(leaves) if is_ref(x)]
    names = argument_names(signature_of(f), args, {})
    check_aliases(f, "shard_map", [leaves[i] for i in at], [names[i] for i in at])

    def on_values(*xs):
        inner_refs = {i: Ref.make(xs[i], argument_name=names[i]) for i in at}
        out = f(*tree.tree_unflatten(structure, [inner_refs.get(i, x) for i, x in enumerate(xs)]))
        check_returned(f, "shard_map", tree.tree_leaves(out))
        return out, [inner_refs[i][...] for i in at]

    out, last = _call(
        functools.update_wrapper(on_values, f),
        replace(
            options,
            in_specs=tuple(specs),
            out_specs=(options.out_specs, [specs[i] for i in at]),
        ),
        tuple(values),
        {},
    )
    for i, value in zip(at, last):
        leaves[i]._write(value)
    return out


def _bind(
    f: Callable,
    flat: list,
    in_tree: Any,
    specs: list,
    specs_of_results: Callable,
    params: dict,
    name: str,
) -> tuple:
    """Trace the program of one device, and bind it as one operation."""
    mesh, check = params["mesh"], params["check_vma"]
    with manual_scope(params), mesh_inside(mesh, params["manual_axes"]):
        body = stage_body(
            f,
            in_tree,
            [block_aval(typeof(x), s, params) for x, s in zip(flat, specs)],
            name,
            "shard_map",
        )
        out_specs = specs_of_results(body.jaxpr.outvars, body.out_tree)
        jaxpr = (
            cast_results_to_vary(body.jaxpr, [typed_axes(s.axes, mesh) for s in out_specs])
            if check
            else body.jaxpr
        )
    in_specs = (*[PartitionSpec()] * len(body.consts), *specs)
    outs = shard_map_p.bind(
        *body.consts, *flat, jaxpr=jaxpr, in_specs=in_specs, out_specs=tuple(out_specs), **params
    )
    return outs, body.out_tree


# --- arguments --------------------------------------------------------------------------------------------------------


def _positional(f: Callable, args: tuple, kwargs: dict, name: str) -> tuple:
    """Return all arguments as positional ones, which have specs."""
    try:
        bound = inspect.signature(f).bind(*args, **kwargs)
    except ValueError:
        raise TypeError(
            f"shard_map({name}): keyword arguments need a function with a signature. Pass them by position."
        ) from None
    if bound.kwargs:
        raise TypeError(
            f"shard_map({name}): keyword-only arguments {sorted(bound.kwargs)} have no place in in_specs. "
            "Pass them by position, or bind them with functools.partial."
        )
    return bound.args


def _axis_set(parameter: str, names: Collection) -> frozenset:
    try:
        return frozenset(names)
    except TypeError:
        raise TypeError(
            f"shard_map: `{parameter}` must be a set of names of mesh axes, got {names!r:.60}."
        ) from None


def _manual(mesh: Mesh, axis_names: frozenset, auto: frozenset, name: str) -> frozenset:
    for what, axes in (("axis_names", axis_names), ("auto", auto)):
        unknown = sorted(map(str, axes - set(mesh.axis_names)))
        if unknown:
            raise ValueError(
                f"shard_map({name}): {what} {unknown} are not axes of the mesh, which has {mesh.axis_names}."
            )
    outer_axes = frozenset(mesh.manual_axes)  # of an enclosing shard_map
    clash = sorted(map(str, axis_names & outer_axes))
    if clash:
        raise ValueError(
            f"shard_map({name}): axis_names {clash} are manual already: this is called inside of a shard_map over them, "
            "where every device has its block. Leave them out."
        )
    return (axis_names or frozenset(mesh.axis_names) - outer_axes) - auto


def _mesh_of(mesh: Any, args: tuple, name: str) -> Any:
    """Return the mesh argument or the context mesh. It has devices, unless values are traced: then the program is only lowered."""
    if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(
            f"shard_map({name}): mesh must be a Mesh, got {mesh!r} of type {type(mesh).__name__}."
        )
    context = current_mesh()
    if mesh is None:
        if context is None or context.empty:
            raise ValueError(
                f"shard_map({name}): there is no mesh. The context mesh cannot be empty without the argument: pass mesh=..., "
                "or call it inside `with mesh:` or after weft.set_mesh(mesh)."
            )
        mesh = context
    if isinstance(mesh, Mesh):
        inside = (
            isinstance(context, Mesh)
            and context.manual_axes
            and context.flat_devices == mesh.flat_devices
            and context.shape_tuple == mesh.shape_tuple
        )
        return context if inside else mesh

    return _mesh_with_devices(mesh, context, args, name)


def _mesh_with_devices(mesh: AbstractMesh, context: Any, args: tuple, name: str) -> Any:
    """Return the mesh of the context or of an array with the axes of `mesh`; `mesh` itself for traced values."""
    leaves = tree.tree_leaves(args)
    meshes = [m for m in (context, *map(_array_mesh, leaves)) if isinstance(m, Mesh)]
    of_arrays = meshes[isinstance(context, Mesh) :]
    fitting = [m for m in meshes if m.shape_tuple == mesh.shape_tuple]
    others = [m for m in (of_arrays if fitting else meshes) if m.shape_tuple != mesh.shape_tuple]
    if others:
        raise ValueError(
            f"shard_map({name}): Mesh shape of the input {others[0]} does not match the mesh shape passed to shard_map, {mesh}."
        )
    if fitting:
        return fitting[0]
    if any_tracers(leaves):
        return mesh
    raise ValueError(
        f"shard_map({name}): {mesh} has no devices. Please pass `weft.Array`s with a `NamedSharding` as input to `shard_map` "
        "when passing `AbstractMesh` to the mesh argument, or enter a mesh with these axes (`with mesh:`)."
    )


def _array_mesh(x: Any) -> Mesh | None:
    sharding = getattr(x, "sharding", None)
    return (
        sharding.mesh
        if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh)
        else None
    )


def _infer_specs(site: ShardMapSite, args: tuple) -> Any:
    """Return the specs of the arguments' shardings, restricted to manual axes; traced values without explicit sharding are whole."""

    def spec(x):
        x = x[...] if is_ref(x) else x
        if isinstance(x, Tracer) and typeof(x).explicit is None:
            return PartitionSpec()
        sharding = getattr(x, "sharding", None) or typeof(x).explicit
        if (
            not isinstance(sharding, NamedSharding)
            or sharding.mesh.axis_names != site.mesh.axis_names
        ):
            raise ValueError(
                f"shard_map({site.name}): in_specs cannot be inferred for an argument of type {typeof(x).str_short()}, "
                "which is not laid out on the mesh. Pass in_specs, or put it there with weft.device_put."
            )
        dims = [
            tuple(a for a in axes if a in site.manual)
            for axes in sharding.spec.dims(typeof(x).ndim)
        ]
        return PartitionSpec(
            *(None if not d else d[0] if len(d) == 1 else d for d in dims),
            unreduced=sharding.spec.unreduced & site.manual,
            reduced=sharding.spec.reduced & site.manual,
        )

    return tree.tree_map(spec, args)
