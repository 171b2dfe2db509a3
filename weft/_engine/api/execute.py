"""Running programs on arrays: placement, the cache of executables, and the evaluator of single operations.

In:   a Jaxpr and concrete arguments.
Out:  arrays. A program is compiled once per combination of argument specs; the executables live and die with the program.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from weft._engine import backends, programs
from weft._engine.api.layouts import argument_order
from weft._engine.api.numerics import result_check
from weft._engine.backends.array_spec import ArraySpec, on_backend
from weft._engine.backends.formats import Layout, order_of
from weft._engine.control.call import jit_p
from weft._engine.control.custom_partition import without_partitions
from weft._engine.core.interpret import evaluate, implemented_apart
from weft._engine.core.primitive import Unsupported
from weft._engine.core.stage import stage
from weft._engine.core.trace import (
    Tracer,
    _state,
    conversion,
    derived_trace,
    escaped_tracer,
    eval_trace,
    implementations,
    set_trace,
    typeof,
)
from weft._engine.ir.explicit import has_explicit_axes, on_devices, says_all
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var, subjaxprs
from weft._engine.ir.mesh import Mesh, current_mesh, device_mesh, unplaced
from weft._engine.ir.program_mesh import (
    check_same_devices,
    constraint_shardings,
    is_abstract,
    operations_that_name,
    typed_devices,
    with_devices,
)
from weft._engine.ir.rewrite import used_vars
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import reshape, transpose
from weft._engine.ops.placement import reshard, reshard_p
from weft._engine.runtime import transfers
from weft._engine.runtime.array import Array, default_sharding, from_numpy, replicated_over, spec_of
from weft._engine.runtime.executable import Executable
from weft._engine.runtime.placement import as_blocks, fits, of_blocks, relaid
from weft._engine.transforms.expand import expand, has_extensions
from weft._engine.transforms.orders import constrained_orders, natural_orders, on_transposed
from weft._engine.transforms.physical import has_keys
from weft._engine.util.config import config
from weft._engine.util.errors import MissingMeshError, ShardingError
from weft._engine.util.events import report
from weft._engine.util.machine_model import MODEL
from weft._engine.util.source import user_frame, warn_user
from weft._engine.util.state import clearing


def to_array(x, sharding: Sharding | None = None, order: tuple[int, ...] | None = None) -> Array:
    """`x` (array, NumPy value, Python scalar) as an uncommitted Array, or itself if it is one; NumPy arrays laid out as
    `sharding`, committed, and stored in `order`, if it is given."""
    if type(x) is Array:
        return x
    if isinstance(x, Tracer):
        raise escaped_tracer(x)
    convert = conversion(x)
    if convert is not None:
        return to_array(convert())
    aval = typeof(x)
    if aval.weak_type or aval.ndim == 0:
        return _scalar_array(x, aval)
    return from_numpy(np.asarray(x, dtype=aval.dtype), aval, sharding, order=order)


def _scalar_array(x, aval) -> Array:
    value = np.asarray(x)
    if value.dtype != aval.dtype:
        if isinstance(x, int) and np.issubdtype(
            aval.dtype, np.integer
        ):  # NumPy's own numbers are cut, as arrays of them are
            info = np.iinfo(aval.dtype)
            if not info.min <= int(value) <= info.max:
                raise OverflowError(
                    f"An overflow: Python int {int(value)} too large to convert to {aval.dtype.name}. Enable 64-bit "
                    "types with "
                    "weft.config.update('enable_x64', True)."
                )
        with np.errstate(over="ignore"):
            value = value.astype(aval.dtype)
    return from_numpy(value, aval)


def run(
    jaxpr: Jaxpr,
    args: Sequence[Array],
    *,
    in_shardings: Sequence[Sharding | None] = (),
    out_shardings: Sequence[Sharding | None] = (),
    donated: Sequence[int] = (),
    name: str = "",
    arg_names: Sequence[str] = (),
    out_layouts: tuple = (),
) -> list[Array]:
    """Compile `jaxpr` for these arguments if need be, and run it."""
    executable, ready = prepare(
        jaxpr, args, in_shardings, out_shardings, donated, name, arg_names, out_layouts=out_layouts
    )
    return run_ready(executable, ready, args)


def run_ready(
    executable: Executable, ready: Sequence[Array], given: Sequence[Array]
) -> list[Array]:
    """Run on arguments made `ready` by `prepare`. A donated one is deleted, also if a copy in another layout was passed in its place."""
    outs = executable(ready)
    for i in executable.donated:
        given[i - len(executable.const_inputs)].delete()
    return outs


def prepare(
    jaxpr: Jaxpr,
    args: Sequence[Array],
    in_shardings=(),
    out_shardings=(),
    donated=(),
    name="",
    arg_names=(),
    backend: str | None = None,
    in_layouts=(),
    out_layouts=(),
) -> tuple[Executable, list[Array]]:
    """The executable for these arguments, and the arguments as it wants them (constants first, placed)."""
    jaxpr = expand(jaxpr)
    consts = const_arrays(jaxpr)
    if in_layouts or (in_shardings and any(s is not None for s in in_shardings)):
        wanted = zip(args, in_shardings, in_layouts or [None] * len(args))
        args = [
            _placed(x, s, layout, name, arg_names, i) for i, (x, s, layout) in enumerate(wanted)
        ]
    specs = tuple([x._spec for x in (*consts, *args)])
    found = executable_for(
        jaxpr, specs, out_shardings, donated, name, arg_names, backend, out_layouts
    )
    return found, [*found.const_inputs, *arranged(found, args)]


def executable_for(
    jaxpr: Jaxpr,
    specs: tuple[ArraySpec, ...],
    out_shardings=(),
    donated=(),
    name="",
    arg_names=(),
    backend: str | None = None,
    out_layouts=(),
) -> Executable:
    """The executable for argument specs (those of the constants first), compiled if it is the first time."""
    key = (
        "executable",
        specs,
        tuple(out_shardings),
        tuple(donated),
        config.trace_key(),
        backend,
        device_mesh(),
        current_mesh() is not None,
        out_layouts,
    )
    found = jaxpr._cache.get(key)
    if found is not None:
        return found
    typed = tuple([_of_type(s) for s in specs])
    if typed == specs:
        found = build(jaxpr, specs, out_shardings, donated, name, arg_names, backend, out_layouts)
    else:
        found = executable_for(
            jaxpr, typed, out_shardings, donated, name, arg_names, backend, out_layouts
        ).for_inputs(typed, specs)
    jaxpr._cache[key] = found
    return found


def _of_type(spec: ArraySpec) -> ArraySpec:
    """Return `spec` with the entries of its type if all axes are explicit: `P('x')` and `P('x', None)` then share a program."""
    sharding, ndim = spec.sharding, spec.aval.ndim
    if not says_all(spec.aval.explicit) or len(sharding.spec) == ndim:
        return spec
    return ArraySpec(
        spec.aval, sharding.with_spec(sharding.spec.of_rank(ndim)), spec.committed, spec.order
    )


def relayout(
    x: Array, sharding: Sharding, committed: bool = True, order: tuple[int, ...] | None = None
) -> Array:
    """`x` laid out as `sharding`, its dims stored in `order`: memory is shared where layouts allow, else values are moved, by a compiled
    copy if there are many."""
    have, want = x._spec, ArraySpec(x.aval, sharding, committed, order)
    if have.has_terms or want.has_terms:
        return _of_other_terms(x, want)
    if have.order != want.order:
        return _in_other_order(x, want)
    if want.order is not None:
        return Array(want, relayout(x._stored(), want.stored.sharding, committed)._live())
    move = (have.splits, have.local_shape, want.splits, want.local_shape, want.storage_dtype)
    is_here = have.by_process is None and want.by_process is None
    by_program = (
        is_here
        and have.backend is want.backend is default_sharding().device.client
        and want.backend.is_one_memory
    )
    is_small = x.nbytes < MODEL.relayout_compiled_bytes
    if is_here and not is_small and _can_reshard_on_devices(have, want):
        (moved,) = run(_copying(x.aval), [x], out_shardings=(sharding,), name="relayout")
        return Array(want, moved._live())
    if (
        is_small
        or not by_program
        or fits(have, want)
        or (x.nbytes < MODEL.relayout_repeated_bytes and _is_first(move))
    ):
        return relaid(x, want)
    with unplaced():
        (moved,) = run(_moving(*move), [as_blocks(x)], name="relayout")
    return of_blocks(moved, want)


def _can_reshard_on_devices(have: ArraySpec, want: ArraySpec) -> bool:
    """Return whether devices with memories of their own exchange values to get from `have` to `want`, without the host."""
    old, new = have.sharding, want.sharding
    is_same_place = (
        old.device_assignment == new.device_assignment and old.memory_kind == new.memory_kind
    )
    return have.backend.exchanges_values and is_same_place and have.splits != want.splits


def _in_other_order(x: Array, want: ArraySpec) -> Array:
    """`x` laid out as `want`, where its dims are stored in another order: copied by NumPy, or by a program if there is much of it."""
    have = x._spec
    is_here = have.by_process is None and want.by_process is None
    move = (have.order, have.local_shape, have.splits, want.order, want.splits, want.storage_dtype)
    is_small = x.nbytes < MODEL.relayout_compiled_bytes or (
        x.nbytes < MODEL.relayout_repeated_bytes and _is_first(move)
    )
    if is_here and (is_small or have.backend is not want.backend):
        return relaid(x, want)
    if x.sharding.device_assignment != want.sharding.device_assignment:
        x = relayout(x, want.sharding, want.committed, have.order)
    with unplaced():
        (moved,) = run(
            _copying(x.aval),
            [x],
            out_shardings=(want.sharding,),
            name="relayout",
            out_layouts=(Layout(want.order or range(x.ndim)),),
        )
    return Array(want, moved._live())


@functools.lru_cache(maxsize=1024)
def _copying(aval: ShapedArray) -> Jaxpr:
    """The program that gives its argument."""
    with set_trace(eval_trace):
        return stage(lambda x: [x], [aval], "relayout")


def _of_other_terms(x: Array, want: ArraySpec) -> Array:
    """`x` laid out as `want`, where one of them has unreduced axes: terms are moved as they are, else added up or made by a program."""
    have, sharding = x._spec, want.sharding
    if fits(have, want):
        return Array(want, x._live())
    if want.order is not None:
        return relayout(relayout(x, sharding, want.committed), sharding, want.committed, want.order)
    if have.has_terms and have.sharding.device_assignment != sharding.device_assignment:
        if want.has_terms and have.stored.aval.shape == want.stored.aval.shape:
            return Array(want, relayout(x._stored(), want.stored.sharding, want.committed)._live())
        x = relayout(x, have.sharding.with_spec(have.sharding.spec.update(unreduced=frozenset())))
        if not want.has_terms:
            return relayout(x, sharding, want.committed)
    if x.sharding.device_assignment != sharding.device_assignment:
        x = relayout(x, sharding.with_spec(PartitionSpec()))
    (moved,) = run(_resharding(x.aval, sharding), [x], out_shardings=(sharding,), name="reshard")
    return moved


@functools.lru_cache(maxsize=1024)
def _resharding(aval: ShapedArray, sharding: Sharding) -> Jaxpr:
    """The program that lays a value out as `sharding`."""
    with set_trace(eval_trace):
        return stage(lambda x: [reshard(x, sharding)], [aval], "reshard")


clearing(_resharding.cache_clear)
clearing(_copying.cache_clear)

_moves: set[tuple] = set()


def _is_first(move: tuple) -> bool:
    """Whether nobody moved anything like this before: once is done sooner than compiled."""
    if move in _moves:
        return False
    if len(_moves) >= 1024:
        _moves.clear()
    _moves.add(move)
    return True


@functools.lru_cache(maxsize=1024)
def _moving(splits: tuple, local: tuple, new_splits: tuple, new_local: tuple, dtype) -> Jaxpr:
    """The program from one block of shards to another."""
    n = len(splits)

    def move(block):
        whole = transpose(block, tuple(k for d in range(n) for k in (d, n + d)))
        cut = reshape(whole, tuple(k for pair in zip(new_splits, new_local) for k in pair))
        return [transpose(cut, (*range(0, 2 * n, 2), *range(1, 2 * n, 2)))]

    with set_trace(eval_trace):
        return stage(move, [ShapedArray(splits + local, dtype)], "relayout")


def on_mesh(args: list[Array]) -> list[Array]:
    """The arguments, those that nobody placed on the devices of the mesh that was set, if one was."""
    mesh = device_mesh()
    return (
        args
        if mesh is None
        else [
            x if x.committed else relayout(x, replicated_over(mesh), order=x._spec.order)
            for x in args
        ]
    )


def arranged(executable: Executable, args: Sequence[Array]) -> Sequence[Array]:
    """The arguments (without constants) laid out as the executable wants them."""
    specs = executable.in_specs[len(executable.const_inputs) :]
    if transfers.guarded():
        have = [x._spec for x in args]
        transfers.between_devices(have, specs)
        here = executable.out_specs[:1] * len(
            specs
        )  # where it runs; the memory of other devices may be read in place
        transfers.between_devices([h for h, s in zip(have, specs) if s is h], here)
    if all(map(operator.is_, map(spec_of, args), specs)):
        return args
    return [
        x if fits(x._spec, s) else relayout(x, s.sharding, order=s.order)
        for x, s in zip(args, specs)
    ]


def build(
    jaxpr: Jaxpr,
    specs: Sequence[ArraySpec],
    out_shardings=(),
    donated=(),
    name="",
    arg_names=(),
    backend: str | None = None,
    out_layouts=(),
) -> Executable:
    """Compile `jaxpr` for argument specs (those of its constants first), for the devices they are on, or those of `backend`."""
    n_consts = len(jaxpr.constvars)
    out_shardings = tuple(out_shardings) or (None,) * len(jaxpr.outvars)
    out_avals = jaxpr.out_avals
    program = jaxpr.memo(
        "closed",
        lambda: Jaxpr(
            (),
            (),
            [*jaxpr.constvars, *jaxpr.invars],
            jaxpr.outvars,
            jaxpr.eqns,
            jaxpr.effects,
            jaxpr.name,
        ),
    )
    if backend is not None:
        specs, out_shardings = _on_one_backend(program, specs, out_shardings, backends.get(backend))
    assignment = device_assignment(
        program, specs, out_shardings, name or jaxpr.name, arg_names, n_consts
    )
    program = with_devices(program, assignment)
    out_shardings = [
        on_devices(s, assignment) if s is not None and is_abstract(s) else s for s in out_shardings
    ]
    if len(assignment) == 1:
        program = without_partitions(program)
    out_shardings = [
        on_devices(a.explicit, assignment) if s is None and says_all(a.explicit) else s
        for s, a in zip(out_shardings, out_avals)
    ]
    if (mesh := device_mesh()) is not None:
        program = _whole_over_explicit(mesh, program, specs, out_shardings)
        out_shardings = _held_by(mesh, program, specs, out_shardings)
    read = used_vars(program)
    donated = [
        d + n_consts for d in donated if program.invars[d + n_consts] in read
    ]  # others are just kept
    with derived_trace(eval_trace):
        check = result_check()
    aliasing = [] if check is not None else donated  # a check needs the arguments once more
    runs_on = assignment[0].client if backend is None else backends.get(backend)
    captured = sum(s.nbytes for s in specs[:n_consts])
    if captured >= config.captured_constants_warn_bytes >= 0:
        warn_user(
            f"{name or jaxpr.name} closes over arrays of {captured} bytes in all, which live as long as it does. Pass them as "
            "arguments, or raise config.captured_constants_warn_bytes (-1 for no limit).",
            UserWarning,
        )
    if config.dump_ir_to:
        _dump(
            program,
            name,
            [s.sharding if s.committed else None for s in specs],
            out_shardings,
            donated,
        )
    report(
        "compilation",
        config.log_compiles,
        "Compiling %s with global shapes and types %s. Argument mapping: %s.",
        name or jaxpr.name,
        tuple([s.aval for s in specs[n_consts:]]),
        _Mapping([s.sharding if s.committed else None for s in specs[n_consts:]]),
    )
    executable = _executable(
        program,
        specs,
        out_shardings,
        out_layouts,
        aliasing,
        name or jaxpr.name or "program",
        assignment,
        runs_on,
    )
    executable.check, executable.donated = check, _usable(executable, donated)
    if config.check and config.checks.of_calls:
        from weft._engine.verification.values import (
            CallVerifier,  # programs without checks do without
        )

        executable.verifier = CallVerifier(config.checks)
    executable.const_inputs = [
        x if fits(x._spec, s) else relayout(x, s.sharding, order=s.order)
        for x, s in zip(const_arrays(jaxpr), executable.in_specs)
    ]
    executable.arg_names = (
        *["a closed-over array"] * n_consts,
        *(arg_names or [f"argument {i}" for i in range(len(specs) - n_consts)]),
    )
    return executable


def _executable(
    jaxpr: Jaxpr,
    specs: Sequence[ArraySpec],
    out_shardings: Sequence[Sharding | None],
    out_layouts: Sequence,
    donated: Sequence[int],
    name: str,
    assignment: tuple,
    backend: backends.Backend,
) -> Executable:
    """The executable of a program without constants: of one on memory, where an argument or a result has an order."""
    in_context = current_mesh() is not None and any(has_explicit_axes(s.sharding) for s in specs)
    ins, outs = [s.order for s in specs], _result_orders(jaxpr, specs, out_layouts, name)
    if not any(ins) and not any(outs):
        return programs.executable_of(
            jaxpr, specs, out_shardings, donated, name, assignment, in_context, backend
        )
    shardings = [
        s if s is None or order is None else s.transposed(order)
        for s, order in zip(out_shardings, outs)
    ]
    found = programs.executable_of(
        on_transposed(jaxpr, ins, outs),
        [s.row_major for s in specs],
        shardings,
        donated,
        name,
        assignment,
        in_context,
        backend,
    )
    return found.on_orders(ins, outs, [s.sharding for s in specs], out_shardings)


def _result_orders(
    jaxpr: Jaxpr, specs: Sequence[ArraySpec], layouts: Sequence, name: str
) -> list[tuple[int, ...] | None]:
    """The order of each result: what its layout says; without one, what a layout constraint that gives it says."""
    orders = constrained_orders(jaxpr)
    if Layout.AUTO in layouts:
        orders = [
            a if layout is Layout.AUTO else b
            for a, b, layout in zip(
                natural_orders(jaxpr, [s.order for s in specs]), orders, layouts
            )
        ]
    return [
        order_of(layout, len(v.aval.shape), name) if isinstance(layout, Layout) else order
        for layout, order, v in zip(layouts or [None] * len(orders), orders, jaxpr.outvars)
    ]


def _whole_over_explicit(
    mesh: Mesh, jaxpr: Jaxpr, specs: Sequence[ArraySpec], out_shardings: Sequence[Sharding | None]
) -> Jaxpr:
    """The program whose results without a sharding are whole over the explicit axes of a mesh that has automatic ones, too: arrays have the
    types that values inside have. Committed arguments that are results stay as they are."""
    if not mesh.explicit_axes or mesh.are_all_axes_explicit:
        return jaxpr
    committed = {v for v, s in zip(jaxpr.invars, specs) if s.committed}
    eqns, outvars = list(jaxpr.eqns), list(jaxpr.outvars)
    for i, (v, sharding) in enumerate(zip(jaxpr.outvars, out_shardings)):
        if sharding is None and v.aval.explicit is None and v not in committed:
            whole = NamedSharding(mesh.abstract_mesh, PartitionSpec(*[None] * v.aval.ndim))
            outvars[i] = Var(v.aval.update(sharding=whole))
            eqns.append(Eqn(reshard_p, [v], [outvars[i]], {"sharding": whole}))
    return jaxpr if len(eqns) == len(jaxpr.eqns) else jaxpr.replace(eqns=eqns, outvars=outvars)


def _held_by(
    mesh: Mesh, jaxpr: Jaxpr, specs: Sequence[ArraySpec], out_shardings: Sequence[Sharding | None]
) -> list[Sharding | None]:
    """Shardings of results, on the mesh that was set where the program says nothing of layouts: types without a sharding are whole
    where all axes are explicit."""
    committed = {
        v: s.sharding for v, s in zip(jaxpr.invars, specs) if s.committed
    }  # arguments that are results stay as they are
    explicit = mesh.are_all_axes_explicit
    if not explicit and (
        constraint_shardings(jaxpr) or (mesh.size > 1 and any(s.committed for s in specs))
    ):
        stays = lambda v: (
            committed.get(v) if mesh.explicit_axes and v.aval.explicit is None else None
        )
        return [
            stays(v) if s is None else s for s, v in zip(out_shardings, jaxpr.outvars)
        ]  # the compiler finds the others
    whole = lambda ndim: (
        NamedSharding(mesh, PartitionSpec(*[None] * ndim)) if explicit else replicated_over(mesh)
    )
    return [
        committed.get(v) or whole(v.aval.ndim) if s is None else s
        for s, v in zip(out_shardings, jaxpr.outvars)
    ]


def _dump(
    program: Jaxpr,
    name: str,
    in_shardings: Sequence[Sharding | None],
    out_shardings: Sequence[Sharding | None],
    donated: Sequence[int],
) -> None:
    """Write the texts that `dump_ir_modes` asks for into the folder `dump_ir_to`."""
    from weft._engine.hlo.stablehlo import stablehlo_text
    from weft._engine.ir import dump

    name = name or program.name
    flags = [i in donated for i in range(len(program.invars))]
    texts = {
        "stablehlo": lambda: stablehlo_text(
            program,
            dump.module_name(name)[4:],
            in_shardings,
            out_shardings,
            flags,
            config.include_debug_info_in_dumps,
        ),
        "jaxpr": lambda: f"{program}\n",
    }
    for mode in config.dump_ir_modes.split(","):
        if mode not in texts:
            raise ValueError(
                f"config.dump_ir_modes: there is no mode {mode!r}; weft writes {', '.join(texts)}."
            )
        dump.write_lowered(config.dump_ir_to, mode, name, texts[mode]())


class _Mapping(tuple):
    """Shardings that print as in reports: None is one that nobody specified."""

    def __str__(self) -> str:
        names = ["UnspecifiedValue" if s is None else str(s) for s in self]
        return f"({', '.join(names)}{',' * (len(names) == 1)})"


def _usable(executable: Executable, donated: Sequence[int]) -> tuple[int, ...]:
    """The donated arguments that a result can replace in memory, one each: those of as many elements of as many bytes, in as many
    shards. A warning names the others."""
    form = lambda spec: (spec.nbytes, spec.storage_dtype.itemsize, math.prod(spec.splits))
    results = Counter(map(form, executable.out_specs))
    usable, others = set(executable.aliases.values()), []
    results.subtract([form(executable.in_specs[i]) for i in usable])
    for i in donated:
        if i not in usable:
            spec = executable.in_specs[i]
            results[form(spec)] -= 1
            usable.add(i) if results[form(spec)] >= 0 else others.append(spec.aval.str_short())
    if others:
        warn_user(
            f"Some donated buffers were not usable: {', '.join(others)}.\n  A result takes a donated argument's memory if it has as "
            "many elements of as many bytes and the same sharding; the arrays are kept.",
            UserWarning,
        )
    return tuple(sorted(usable))


def _on_one_backend(
    jaxpr: Jaxpr,
    specs: Sequence[ArraySpec],
    out_shardings: Sequence[Sharding | None],
    backend: backends.Backend,
) -> tuple[list[ArraySpec], list[Sharding | None]]:
    """Specs and shardings on the devices that the program names inside, or, if it names none, on those of the backend that runs it."""
    inside = next((s for s in constraint_shardings(jaxpr) if not is_abstract(s)), None)
    devices = typed_devices(jaxpr) if inside is None else inside.device_assignment
    runs_on = backend if devices is None else devices[0].client
    placed = [
        ArraySpec(s.aval, on_backend(s.sharding, runs_on), s.committed, s.order) for s in specs
    ]
    return placed, [on_backend(s, runs_on) for s in out_shardings]


def const_arrays(jaxpr: Jaxpr) -> list[Array]:
    """The constants of a program as arrays (NumPy constants are converted once), which outlive those that the user deletes or donates."""
    if not jaxpr.consts:
        return []
    with transfers.Passing(transfers.NO_TRANSFER), unplaced():
        return jaxpr.memo(
            "const arrays", lambda: [Array(x._spec, x._live()) for x in map(to_array, jaxpr.consts)]
        )


def device_assignment(
    jaxpr: Jaxpr, specs, out_shardings, name: str, arg_names, n_consts: int
) -> tuple:
    """The ordered devices that a program runs on; an error if committed arguments disagree."""
    committed = [i for i, spec in enumerate(specs) if spec.committed]
    called = name.removeprefix("jit(").removesuffix(")")

    def name_of(k: int) -> str:
        i = committed[k] - n_consts
        label = "closed over" if i < 0 else arg_names[i] if i < len(arg_names) else f"number {i}"
        return f"argument {label} of {called} with shape {specs[committed[k]].aval.str_short()}"

    check_same_devices([specs[i].sharding for i in committed], name_of)
    chosen = specs[committed[0]].sharding.device_assignment if committed else None
    for s in (*out_shardings, *constraint_shardings(jaxpr)):
        if s is None or is_abstract(s):  # an abstract mesh takes the devices of the others
            continue
        if chosen is None or (len(chosen) == 1 and not committed):
            chosen = s.device_assignment
        elif s.device_assignment != chosen:
            where = (
                f"{name_of(0)} and device ids {[d.id for d in chosen]}"
                if committed
                else "another sharding"
            )
            inside = operations_that_name(jaxpr).get(s)
            named = (
                "an out_sharding of jit"
                if s in out_shardings or inside is None
                else f"a {inside} inside jit"
            )
            raise ShardingError(
                f"Received incompatible devices for jitted computation. Got {where} and {named} with device ids "
                f"{[d.id for d in s.device_assignment]}, in {name}.\n"
                "  Shardings in a computation must use the devices of its committed arguments, in the same order."
            )
    chosen = chosen or typed_devices(jaxpr)
    mesh = device_mesh()
    if mesh is None:
        return chosen or default_sharding().device_assignment
    if chosen is not None and chosen != mesh.flat_devices:
        where = name_of(0) if committed else f"a sharding in {name}"
        raise ShardingError(
            f"Received incompatible devices for jitted computation. Got {where} and device ids {[d.id for d in chosen]}, and the mesh in "
            f"context has the device ids {[d.id for d in mesh.flat_devices]}.\n"
            "  Move committed arrays onto the mesh with weft.device_put(x, NamedSharding(mesh, spec)), or use them outside of its context."
        )
    return mesh.flat_devices


def _placed(x: Array, sharding: Sharding | None, layout, name: str, arg_names, i: int) -> Array:
    """Argument `x` where `in_shardings` wants it, as `layout` wants it."""
    label = arg_names[i] if i < len(arg_names) else f"number {i}"
    order = (
        x._spec.order
        if layout is None
        else argument_order(name, label, x._spec, layout, x.committed)
    )
    if sharding is None:
        return x if order == x._spec.order else relayout(x, x.sharding, x.committed, order)
    if x.committed and not x.sharding.is_equivalent_to(sharding, x.ndim):
        devices = [
            f" on devices with ids {[d.id for d in s.device_assignment]}"
            for s in (x.sharding, sharding)
        ]
        if devices[0] == devices[1]:
            devices = ["", ""]
        raise ValueError(
            f"{name}: Sharding passed to jit does not match the sharding on the respective arg. argument {label} of type "
            f"{x.aval.str_short()} has the sharding {x.sharding}{devices[0]}, in_shardings says {sharding}{devices[1]}.\n"
            "  A committed argument is not moved silently. Use weft.device_put(x, sharding) first, or leave its in_sharding out."
        )
    if is_abstract(sharding):
        raise MissingMeshError(
            f"{name}: in_shardings lays argument {label} out over a mesh without devices, {sharding.mesh}, on which no "
            "program runs; a PartitionSpec requires a non-empty mesh of devices in context.\n"
            "  Make one current with weft.set_mesh(mesh), or lower the function only."
        )
    sharding.check_shape(x.shape, arg_names[i] if i < len(arg_names) else "an argument")
    if transfers.guarded():
        transfers.between_devices([x._spec], [ArraySpec(x.aval, sharding, True)])
    return relayout(x, sharding, order=order)


# ---- the evaluator of single operations


@functools.lru_cache(maxsize=8192)
def _one_op(
    primitive, avals: tuple, params: tuple, floats: tuple, is_lenient: bool, terms: frozenset
) -> Jaxpr:
    """The program of one operation. `floats`, their texts, distinguish parameters that are equal and not the same (0.0 and -0.0);
    `is_lenient` those whose types were not checked, `terms` those of sums that are not added up over these axes."""
    return _stage_op(primitive, avals, dict(params))


clearing(_one_op.cache_clear)


def _region_op(primitive, avals, params) -> Jaxpr:
    """The program of one operation that holds programs; it lives and dies with the first of them."""
    inner = next((j for _, j in subjaxprs(params)), None)
    if inner is None:
        return _stage_op(primitive, avals, params)
    return inner.memo(
        ("one op", primitive, avals, tuple(params.items())),
        lambda: _stage_op(primitive, avals, params),
    )


def _stage_op(primitive, avals, params) -> Jaxpr:
    def op(*xs):
        out = primitive.bind(*xs, **params)
        return out if primitive.multiple_results else [out]

    with set_trace(eval_trace):
        return stage(op, avals, primitive.name)


def tracked(
    jaxpr: Jaxpr, name: str, arrays: Sequence[Array], call: Callable[[], list[Array]]
) -> list[Array]:
    """The results of `call`, a program on `arrays`; where `debug_key_reuse` is set, KeyReuseError if it uses a random key again."""
    if not config.debug_key_reuse or not has_keys(jaxpr):
        return call()
    from weft._engine.api import key_reuse

    signature = key_reuse.signature_of(jaxpr)
    key_reuse.used_by_call(name, signature, arrays)
    outs = call()
    key_reuse.give_results(signature, arrays, outs)
    return outs


def _at_once(params: dict, arrays: Sequence[Array]) -> bool:
    """Whether a callback needs no program: it takes whole values, or all are on one device."""
    return not params.get("partitioned") or all(
        len(x.sharding.device_assignment) == 1 for x in arrays
    )


def evaluate_op(primitive, args, params):
    """Compute one primitive on concrete values."""
    if primitive.kind == "extension" and (primitive.has("impl") or not primitive.has("expand")):
        return primitive.impl(*args, **params)
    return compiled_op(primitive, args, params)


def compiled_op(primitive, args, params):
    """Compute one primitive on concrete values by the program of it."""
    if primitive.is_call:
        inner = params["jaxpr"]  # what jit calls is compiled, but for operations that cannot be
        if (
            has_extensions(inner) or (implementations and primitive is not jit_p)
        ) and implemented_apart(inner):
            return evaluate(inner, *args)
    arrays = [to_array(x) for x in args]
    if primitive is jit_p:
        jaxpr, name = params["jaxpr"], params["name"]
        return tracked(
            jaxpr,
            f"jit({name})",
            arrays,
            lambda: run(
                jaxpr,
                on_mesh(arrays),
                in_shardings=params["in_shardings"],
                out_shardings=params["out_shardings"],
                donated=[i for i, d in enumerate(params["donated"]) if d],
                name=f"jit({name})",
            ),
        )
    if primitive.kind == "callback" and _at_once(params, arrays):
        from weft._engine.ops.callback import reporting

        backends.wait_for_effects()
        call = (
            reporting(primitive, user_frame())
            if "result_avals" in params
            else primitive.rule("reference")
        )
        return [to_array(x) for x in call(*[x._numpy() for x in arrays], **params)]
    if type(primitive.rules.get("reference")) is Unsupported:
        primitive.rule("reference")  # raises: the operation has no value of its own
    avals = tuple([x._spec.aval for x in arrays])
    try:
        if primitive.kind == "region":
            jaxpr = _region_op(primitive, avals, params)
        else:
            floats = tuple([repr(v) for v in params.values() if isinstance(v, float)])
            jaxpr = _one_op(
                primitive, avals, tuple(params.items()), floats, _state.lenient, _state.terms
            )
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        jaxpr = _stage_op(primitive, avals, params)
    outs = tracked(
        jaxpr, primitive.name, arrays, lambda: run(jaxpr, on_mesh(arrays), name=primitive.name)
    )
    return outs if primitive.multiple_results else outs[0]
