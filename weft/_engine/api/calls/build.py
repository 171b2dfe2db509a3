"""Compilation of a program for the placements of its arguments.

In:   a Jaxpr, the array specs of its constants and arguments, and `ProgramOptions`.
Out:  an `Executable`, for the devices named by the array specs and the program. The caller places constants.
Laws: committed arguments and shardings name the same devices in the same order; a disagreement is an error that names both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from weft._engine import backends, programs
from weft._engine.api.numerics import result_check
from weft._engine.backends.array_spec import ArraySpec, with_backend_devices
from weft._engine.backends.formats import Layout, order_of
from weft._engine.control.custom_partition import without_partitions
from weft._engine.core.trace import derived_trace, eval_trace
from weft._engine.ir.explicit import determines_placement, has_explicit_axes, on_devices
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.mesh import AUTO, Mesh, current_mesh, placement_mesh
from weft._engine.ir.program_mesh import (
    check_same_devices,
    constraint_shardings,
    devices_of_types,
    is_abstract,
    operations_by_sharding,
    with_devices,
)
from weft._engine.ir.rewrite import used_vars
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ops.placement import reshard_p
from weft._engine.runtime.array import default_sharding, make_replicated_sharding
from weft._engine.runtime.executable import CompileRequest, Executable
from weft._engine.transforms.dim_orders import constrained_orders, natural_orders, with_dim_orders
from weft._engine.util.config import config
from weft._engine.util.errors import ShardingError
from weft._engine.util.events import report
from weft._engine.util.record import record, replace
from weft._engine.util.source import warn_user


@record
class ProgramOptions:
    """The layouts of a program's arguments and results, and the names and donations of arguments.

    Empty shardings, layouts and names are unspecified. `donated` are the numbers of arguments whose memory results may reuse.
    """

    name: str = ""
    arg_names: Sequence[str] = ()
    in_shardings: Sequence[Sharding | None] = ()
    out_shardings: Sequence[Sharding | None] = ()
    donated: Sequence[int] = ()
    backend: str | None = None
    in_layouts: tuple = ()
    out_layouts: tuple = ()
    automatic: AUTO | None = None
    is_automatic: tuple[bool, ...] = ()

    @property
    def places_arguments(self) -> bool:
        """Whether the sharding or layout of an argument is specified."""
        return bool(self.in_layouts) or any(s is not None for s in self.in_shardings)

    def compilation_key(self) -> tuple:
        """Return the fields on which the compiled program depends."""
        return (
            tuple(self.out_shardings),
            tuple(self.donated),
            self.backend,
            self.out_layouts,
            self.automatic,
        )

    def open_specs(self, specs: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
        """Return the array specs of arguments for the compiler: those with an automatic sharding become uncommitted."""
        if self.automatic is None or not any(self.is_automatic):
            return tuple(specs)
        replicated = make_replicated_sharding(self.automatic.mesh)
        return tuple(
            [
                ArraySpec(s.aval, replicated, False, s.order) if is_open else s
                for s, is_open in zip(specs, self.is_automatic)
            ]
        )

    def label(self, i: int) -> str:
        """Return the name of argument `i` in errors."""
        return self.arg_names[i] if i < len(self.arg_names) else f"number {i}"


def build(jaxpr: Jaxpr, specs: Sequence[ArraySpec], options: ProgramOptions) -> Executable:
    """Compile `jaxpr` for array specs of arguments (constants first), on their devices or the backend's."""
    count = len(jaxpr.constvars)
    request = request_of(jaxpr, specs, options)
    with derived_trace(eval_trace):
        check = result_check()
    if config.captured_constants_warn_bytes >= 0:
        _warn_of_large_constants(request.in_specs[:count], request.name)
    if config.dump_ir_to:
        _dump(request, options.name)
    _report_compilation(request.name, request.in_specs[count:])
    donated = request.donated
    if check is not None:  # it reads the arguments after the call
        request = replace(request, donated=[])
    executable = _in_orders(request, options.out_layouts)
    executable.check_results, executable.donated = check, _donatable(executable, donated)
    if config.check:
        _add_verifier(executable)
    arguments = range(len(specs) - count)
    executable.arg_names = (
        *["a closed-over array"] * count,
        *(options.arg_names or [f"argument {i}" for i in arguments]),
    )
    return executable


def request_of(jaxpr: Jaxpr, specs: Sequence[ArraySpec], options: ProgramOptions) -> CompileRequest:
    """Return the request to compile `jaxpr` for array specs of arguments, with its constants as leading arguments."""
    count = len(jaxpr.constvars)
    name = options.name or jaxpr.name
    program = _without_constvars(jaxpr)
    out_shardings = list(options.out_shardings) or [None] * len(jaxpr.outvars)
    if options.backend is not None:
        backend = backends.get(options.backend)
        specs, out_shardings = _on_one_backend(program, specs, out_shardings, backend)
    assignment = device_assignment(program, specs, out_shardings, options, name, count)
    program, out_shardings = _on_assignment(program, specs, out_shardings, assignment)
    used = used_vars(program)
    # donated arguments that the program does not read are not donated
    donated = [d + count for d in options.donated if program.invars[d + count] in used]
    return CompileRequest(
        program,
        specs,
        out_shardings,
        donated,
        name or "program",
        assignment,
        current_mesh() is not None and any(has_explicit_axes(s.sharding) for s in specs),
        assignment[0].client if options.backend is None else backends.get(options.backend),
        options.automatic,
    )


def _add_verifier(executable: Executable) -> None:
    if config.checks.of_calls:
        from weft._engine.verification.values import CallVerifier  # not loaded without checks

        executable.verifier = CallVerifier(config.checks)


def _report_compilation(name: str, specs: Sequence[ArraySpec]) -> None:
    report(
        "compilation",
        config.log_compiles,
        "Compiling %s with global shapes and types %s. Argument mapping: %s.",
        name,
        tuple([s.aval for s in specs]),
        _LoggedShardings([s.sharding if s.committed else None for s in specs]),
    )


def _without_constvars(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program with its constants as leading inputs."""
    return jaxpr.memo(
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


def _on_assignment(
    program: Jaxpr,
    specs: Sequence[ArraySpec],
    out_shardings: Sequence[Sharding | None],
    assignment: tuple,
) -> tuple[Jaxpr, list[Sharding | None]]:
    """Return the program and the shardings of its results on the devices `assignment`."""
    out_avals = program.out_avals
    program = with_devices(program, assignment)
    if len(assignment) == 1:
        program = without_partitions(program)
    placed: list[Sharding | None] = []
    for sharding, aval in zip(out_shardings, out_avals):
        if sharding is not None and is_abstract(sharding):
            sharding = on_devices(sharding, assignment)
        elif sharding is None and determines_placement(aval.explicit):
            sharding = on_devices(aval.explicit, assignment)
        placed.append(sharding)
    if (mesh := placement_mesh()) is not None:
        program = _replicate_over_explicit_axes(mesh, program, specs, placed)
        placed = _default_out_shardings(mesh, program, specs, placed)
    return program, placed


def _warn_of_large_constants(specs: Sequence[ArraySpec], name: str) -> None:
    captured = sum([s.nbytes for s in specs])
    if captured >= config.captured_constants_warn_bytes:
        warn_user(
            f"{name} closes over arrays of {captured} bytes in all, which live as long as it does. Pass them as "
            "arguments, or raise config.captured_constants_warn_bytes (-1 for no limit).",
            UserWarning,
        )


def _in_orders(request: CompileRequest, out_layouts: Sequence) -> Executable:
    """Return the executable of a program whose arguments or results may have other dim orders."""
    ins = [s.order for s in request.in_specs]
    outs = _result_orders(request.jaxpr, request.in_specs, out_layouts, request.name)
    if not any(ins) and not any(outs):
        return programs.get_executable(request)
    shardings = [
        s if s is None or order is None else s.transpose_dims(order)
        for s, order in zip(request.out_shardings, outs)
    ]
    row_major = replace(
        request,
        jaxpr=with_dim_orders(request.jaxpr, ins, outs),
        in_specs=[s.row_major for s in request.in_specs],
        out_shardings=shardings,
    )
    executable = programs.get_executable(row_major)
    in_shardings = [s.sharding for s in request.in_specs]
    return executable.on_orders(ins, outs, in_shardings, request.out_shardings)


def _result_orders(
    jaxpr: Jaxpr, specs: Sequence[ArraySpec], layouts: Sequence, name: str
) -> list[tuple[int, ...] | None]:
    """Return the dim order of each result: from its layout, or else from a layout constraint that produces it."""
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


def _replicate_over_explicit_axes(
    mesh: Mesh, jaxpr: Jaxpr, specs: Sequence[ArraySpec], out_shardings: Sequence[Sharding | None]
) -> Jaxpr:
    """Return the program with unspecified results replicated over the explicit axes of a mesh.

    The mesh also has automatic axes; arrays then have the types of values inside. Committed arguments that are results keep their sharding.
    """
    if not mesh.explicit_axes or mesh.are_all_axes_explicit:
        return jaxpr
    committed = {v for v, s in zip(jaxpr.invars, specs) if s.committed}
    eqns, outvars = list(jaxpr.eqns), list(jaxpr.outvars)
    for i, (v, sharding) in enumerate(zip(jaxpr.outvars, out_shardings)):
        if sharding is None and v.aval.explicit is None and v not in committed:
            whole = NamedSharding(mesh.abstract_mesh, PartitionSpec(*[None] * v.aval.ndim))
            outvars[i] = resharded = Var(v.aval.update(sharding=whole))
            eqns.append(Eqn(reshard_p, [v], [resharded], {"sharding": whole}))
    return jaxpr if len(eqns) == len(jaxpr.eqns) else jaxpr.replace(eqns=eqns, outvars=outvars)


def _default_out_shardings(
    mesh: Mesh, jaxpr: Jaxpr, specs: Sequence[ArraySpec], out_shardings: Sequence[Sharding | None]
) -> list[Sharding | None]:
    """Return the shardings of results: unspecified ones are replicated over the mesh, unless propagation has an input."""
    # arguments that are results keep their shardings
    committed = {v: s.sharding for v, s in zip(jaxpr.invars, specs) if s.committed}
    explicit = mesh.are_all_axes_explicit
    if not explicit and (
        constraint_shardings(jaxpr) or (mesh.size > 1 and any(s.committed for s in specs))
    ):
        stays = lambda v: (
            committed.get(v) if mesh.explicit_axes and v.aval.explicit is None else None
        )
        # propagation determines the others
        return [stays(v) if s is None else s for s, v in zip(out_shardings, jaxpr.outvars)]
    whole = lambda ndim: (
        NamedSharding(mesh, PartitionSpec(*[None] * ndim))
        if explicit
        else make_replicated_sharding(mesh)
    )
    return [
        committed.get(v) or whole(v.aval.ndim) if s is None else s
        for s, v in zip(out_shardings, jaxpr.outvars)
    ]


def _dump(request: CompileRequest, name: str) -> None:
    """Write the texts that `dump_ir_modes` lists into the folder `dump_ir_to`."""
    from weft._engine.hlo.text.stablehlo import stablehlo_text
    from weft._engine.ir import stage_dump

    program = request.jaxpr
    name = name or program.name
    flags = [i in request.donated for i in range(len(program.invars))]
    in_shardings = [s.sharding if s.committed else None for s in request.in_specs]
    texts = {
        "stablehlo": lambda: stablehlo_text(
            program,
            stage_dump.module_name(name)[4:],
            in_shardings,
            request.out_shardings,
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
        stage_dump.write_lowered(config.dump_ir_to, mode, name, texts[mode]())


class _LoggedShardings(tuple):
    """Shardings in the format of JAX's compilation log: None is UnspecifiedValue."""

    def __str__(self) -> str:
        names = ["UnspecifiedValue" if s is None else str(s) for s in self]
        return f"({', '.join(names)}{',' * (len(names) == 1)})"


def _donatable(executable: Executable, donated: Sequence[int]) -> tuple[int, ...]:
    """Return the donated arguments that a result can replace in memory, one each.

    An argument needs an equal number of elements, element size and number of shards. Warn of the others.
    """
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
    """Return array specs and shardings on the devices that the program names inside, or else on the devices of `backend`."""
    inside = next((s for s in constraint_shardings(jaxpr) if not is_abstract(s)), None)
    devices = devices_of_types(jaxpr) if inside is None else inside.device_assignment
    runs_on = backend if devices is None else devices[0].client
    placed = [
        ArraySpec(s.aval, with_backend_devices(s.sharding, runs_on), s.committed, s.order)
        for s in specs
    ]
    return placed, [with_backend_devices(s, runs_on) for s in out_shardings]


def device_assignment(
    jaxpr: Jaxpr,
    specs: Sequence[ArraySpec],
    out_shardings: Sequence[Sharding | None],
    options: ProgramOptions,
    name: str,
    const_count: int,
) -> tuple:
    """Return the ordered devices that a program runs on; raise ShardingError if committed arguments disagree."""
    return _DeviceSearch(jaxpr, specs, out_shardings, options, name, const_count).devices()


class _DeviceSearch:
    """The search for the devices of a program among its arguments, its shardings and the mesh in context."""

    def __init__(
        self,
        jaxpr: Jaxpr,
        specs: Sequence[ArraySpec],
        out_shardings: Sequence[Sharding | None],
        options: ProgramOptions,
        name: str,
        const_count: int,
    ):
        self.jaxpr, self.specs, self.out_shardings = jaxpr, specs, out_shardings
        self.options, self.name, self.const_count = options, name, const_count
        self.committed = [i for i, spec in enumerate(specs) if spec.committed]

    def devices(self) -> tuple:
        """Return the devices: of arguments, of shardings, of types, of the mesh in context, or the default one."""
        specs, committed = self.specs, self.committed
        check_same_devices([specs[i].sharding for i in committed], self._argument)
        chosen = specs[committed[0]].sharding.device_assignment if committed else None
        for sharding in self._collect_named_shardings():
            if sharding is None or is_abstract(sharding):  # these adopt the devices of the others
                continue
            if chosen is None or (len(chosen) == 1 and not committed):
                chosen = sharding.device_assignment
            elif sharding.device_assignment != chosen:
                raise self._disagreement(sharding, chosen)
        chosen = chosen or devices_of_types(self.jaxpr)
        mesh = placement_mesh()
        if mesh is None:
            return chosen or default_sharding().device_assignment
        if chosen is not None and chosen != mesh.flat_devices:
            raise self._off_mesh(chosen, mesh)
        return mesh.flat_devices

    def _collect_named_shardings(self) -> list[Sharding | None]:
        """Return the shardings that the program names: automatic ones, shardings of results and of constraints."""
        auto = self.options.automatic
        automatic = [] if auto is None else [make_replicated_sharding(auto.mesh)]
        return [*automatic, *self.out_shardings, *constraint_shardings(self.jaxpr)]

    def _argument(self, k: int) -> str:
        """Return a description of the committed argument number `k`."""
        i = self.committed[k] - self.const_count
        label = "closed over" if i < 0 else self.options.label(i)
        function = self.name.removeprefix("jit(").removesuffix(")")
        shape = self.specs[self.committed[k]].aval.str_short()
        return f"argument {label} of {function} with shape {shape}"

    def _disagreement(self, sharding: Sharding, chosen: tuple) -> ShardingError:
        first = (
            f"{self._argument(0)} and device ids {[d.id for d in chosen]}"
            if self.committed
            else "another sharding"
        )
        op = operations_by_sharding(self.jaxpr).get(sharding)
        other = (
            "an out_sharding of jit"
            if sharding in self.out_shardings or op is None
            else f"a {op} inside jit"
        )
        return ShardingError(
            f"Received incompatible devices for jitted computation. Got {first} and {other} with device ids "
            f"{[d.id for d in sharding.device_assignment]}, in {self.name}.\n"
            "  Shardings in a computation must use the devices of its committed arguments, in the same order."
        )

    def _off_mesh(self, chosen: tuple, mesh: Mesh) -> ShardingError:
        where = self._argument(0) if self.committed else f"a sharding in {self.name}"
        return ShardingError(
            f"Received incompatible devices for jitted computation. Got {where} and device ids {[d.id for d in chosen]}, and the mesh in "
            f"context has the device ids {[d.id for d in mesh.flat_devices]}.\n"
            "  Move committed arrays onto the mesh with weft.device_put(x, NamedSharding(mesh, spec)), or use them outside of its context."
        )
