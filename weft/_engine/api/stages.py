"""Stages of compilation for users: `f.trace(...)`, `.lower()`, `.compile()`, each with its text and properties."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from typing import Any

from weft._engine import backends
from weft._engine.api.calls.build import request_of
from weft._engine.api.execute import const_arrays, executable_for, to_array
from weft._engine.api.layouts import argument_order, check_donated_layouts
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import Device
from weft._engine.backends.formats import Format, Layout, format_of, order_of
from weft._engine.control.custom_partition import without_partitions
from weft._engine.control.hijax_types import flatten
from weft._engine.control.ref import Ref, is_ref
from weft._engine.core.sealed_classes import Sealed
from weft._engine.core.trace import Tracer
from weft._engine.ir.explicit import on_devices, type_sharding
from weft._engine.ir.jaxpr import Jaxpr, Var
from weft._engine.ir.mesh import Mesh, current_mesh
from weft._engine.ir.program_mesh import is_abstract
from weft._engine.ir.rewrite import dce, inline_hijax_ops
from weft._engine.ir.shardings import Sharding
from weft._engine.ir.types import ShapedArray
from weft._engine.runtime.array import Array, placement_of_new
from weft._engine.runtime.executable import CompileRequest
from weft._engine.transforms.expand_library_ops import expand
from weft._engine.util import tree
from weft._engine.util.config import Override
from weft._engine.util.events import spell_names
from weft._engine.util.record import record
from weft._engine.util.source import function_module


@record
class ArgInfo:
    """Type and donation of one argument of a lowered function."""

    __module__ = "weft.stages"

    aval: ShapedArray
    donated: bool

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)


def specified_sharding(x) -> Sharding | None:
    """Return the specified sharding of the argument `x` (an array, a number, a type or a ShapeDtypeStruct), or None."""
    if type(x) is Array:
        return x.sharding if x.committed else None
    return x.explicit if isinstance(x, ShapedArray) else getattr(x, "sharding", None)


def _spec(x, aval, devices: tuple) -> ArraySpec:
    """Return the array spec of the argument `x`; a sharding over an abstract mesh gets these devices."""
    if type(x) is Array:
        return x._spec
    sharding = specified_sharding(x)
    if sharding is None:
        return ArraySpec(aval, *placement_of_new())
    sharding = on_devices(sharding, devices) if is_abstract(sharding) else sharding
    return ArraySpec(aval, sharding, True, order_of(getattr(x, "layout", None), aval.ndim, "lower"))


def _devices_of(shardings: Sequence[Sharding | None]) -> tuple:
    """Return the devices of a program with arguments over an abstract mesh.

    They are the devices of other arguments, of the context mesh, or planned devices, which can only be compiled for; () if no mesh is
    abstract.
    """
    specified = [s for s in shardings if s is not None]
    abstract = next((s for s in specified if is_abstract(s)), None)
    if abstract is None:
        return ()
    context = current_mesh()
    if isinstance(context, Mesh) and context.abstract_mesh is abstract.mesh:
        return context.flat_devices
    concrete = next((s for s in specified if not is_abstract(s)), None)
    return _plan_shardings(abstract.mesh.size) if concrete is None else concrete.device_assignment


@functools.lru_cache(maxsize=64)
def _plan_shardings(count: int) -> tuple:
    from weft._engine.backends.planned_devices import planned_devices  # imports the whole compiler

    return tuple(planned_devices(1, count))


def result_paths(structure: Any) -> list[str]:
    """Return the paths of the leaves in a tree of results: `result`, `result[0]`, `result['loss']`."""
    paths, _ = tree.tree_flatten_with_path(
        tree.tree_unflatten(structure, range(structure.num_leaves))
    )
    return [f"result{tree.keystr(path)}" for path, _ in paths]


class Traced(metaclass=Sealed):
    """A function traced for types of arguments: its jaxpr and result types.

    >>> traced = weft.jit(lambda x: x + 1).trace(2.0)
    >>> traced.fun_name, traced.in_avals, traced.out_avals, len(traced.jaxpr.eqns)
    ('<lambda>', ((ShapedArray(float32[], weak_type=True),), {}), ShapedArray(float32[], weak_type=True), 1)
    >>> float(traced.lower().compile()(2.0))
    3.0
    """

    __module__ = "weft.stages"

    _created_by = "weft.jit(f).trace(...)"

    def __init__(self, jitted, program, leaves: Sequence[Any], refs: Sequence[Ref] | None = None):
        """`refs` are the references whose values are the leading arguments; None without mutable arrays."""
        self._jitted, self._program, self._leaves, self._refs = jitted, program, list(leaves), refs

    @property
    def jaxpr(self) -> Jaxpr:
        """The traced program."""
        return self._program.jaxpr

    @property
    def lojax(self) -> "Traced":
        """This stage, with operations of user-defined types (`experimental.hijax`) replaced by what they compute."""
        program = copy.copy(self._program)
        program.jaxpr = inline_hijax_ops(program.jaxpr)
        return Traced.make(self._jitted, program, self._leaves, self._refs)

    @property
    def fun_name(self) -> str:
        """Name of the traced function."""
        return self._program.name

    @property
    def in_avals(self):
        """Types of the arguments: `(positional, keyword)` trees."""
        return tree.tree_unflatten(self._program.in_tree, self._program.in_avals)

    @property
    def out_avals(self):
        """Types of the results, as a tree."""
        return tree.tree_unflatten(self._program.out_tree, self._program.jaxpr.out_avals)

    @property
    def in_tree(self):
        """Structure of `(args, kwargs)`, without static arguments."""
        return self._program.in_tree

    @property
    def out_tree(self):
        """Structure of the results."""
        return self._program.out_tree

    @property
    def args_info(self):
        """Types and donation of the arguments, as a tree."""
        infos = [ArgInfo(a, d) for a, d in zip(self._program.in_avals, self._program.donated)]
        return tree.tree_unflatten(self._program.in_tree, infos)

    @property
    def out_info(self):
        """Shapes and dtypes of the results, as a tree."""
        program = self._program
        layouts = program.out_layouts or [None] * len(program.out_shardings)
        placed = [
            Format(layout, s) if isinstance(layout, Layout) else s
            for layout, s in zip(layouts, program.out_shardings)
        ]
        structs = [
            ShapeDtypeStruct(
                a.shape, a.dtype, sharding=s or a.explicit, weak_type=a.weak_type, vma=a.vma
            )
            for a, s in zip(program.jaxpr.out_avals, placed)
        ]
        return tree.tree_unflatten(program.out_tree, structs)

    def _remove_unused(self, jaxpr: Jaxpr) -> tuple[Jaxpr, list[bool]]:
        """Return `jaxpr` without dead code and unused arguments, and which arguments were kept; all are with `keep_unused`."""
        jaxpr = dce(jaxpr)
        read = {a for eqn in jaxpr.eqns for a in eqn.invars if isinstance(a, Var)} | set(
            jaxpr.outvars
        )
        is_used = [self._jitted.options.keep_unused or v in read for v in jaxpr.invars]
        return jaxpr.replace(invars=[v for v, keep in zip(jaxpr.invars, is_used) if keep]), is_used

    def lower(self, *, lowering_platforms=None, **_options) -> "Lowered":
        """Return the program with the layouts of its arguments, ready to be compiled.

        If all of these are over abstract meshes, it can be compiled and inspected, but not run.
        """
        return Lowered.make(self)


class Lowered(metaclass=Sealed):
    """A traced program with the layouts of its arguments.

    >>> lowered = weft.jit(lambda x: x + 1).lower(2.0)
    >>> "stablehlo.add" in lowered.as_text(), "stablehlo.add" in str(lowered.compiler_ir()), lowered.in_avals
    (True, True, ((ShapedArray(float32[], weak_type=True),), {}))
    >>> float(lowered.compile()(2.0))
    3.0
    """

    __module__ = "weft.stages"

    _created_by = "weft.jit(f).lower(...)"

    def __init__(self, traced: Traced):
        self._traced = traced
        program = traced._program
        self._jaxpr = expand(program.jaxpr)
        devices = _devices_of([*map(specified_sharding, traced._leaves), *program.in_shardings])
        specs = [_spec(x, aval, devices) for x, aval in zip(traced._leaves, program.in_avals)]
        orders = [s.order for s in specs]
        if program.in_layouts or program.out_layouts:
            specified = [
                x.committed if type(x) is Array else getattr(x, "layout", None) is not None
                for x in traced._leaves
            ]
            check_donated_layouts(program, specified)
            arguments = zip(specs, program.in_layouts, program.arg_names, specified)
            orders = [
                s.order
                if layout is None
                else argument_order(f"jit({program.name})", label, s, layout, is_given)
                for s, layout, label, is_given in arguments
            ] or orders
        self.in_specs = [
            s
            if specified is None and order == s.order
            else ArraySpec(s.aval, s.sharding, s.committed, order)
            if specified is None
            else ArraySpec(
                aval,
                on_devices(specified, devices) if is_abstract(specified) else specified,
                True,
                order,
            )
            for s, aval, specified, order in zip(
                specs, program.in_avals, program.in_shardings, orders
            )
        ]
        self.in_specs = [*program.options(None).open_specs(self.in_specs)]

    in_tree = property(lambda self: self._traced.in_tree)
    out_tree = property(lambda self: self._traced.out_tree)
    args_info = property(lambda self: self._traced.args_info)
    out_info = property(lambda self: self._traced.out_info)
    donate_argnums = property(
        lambda self: tuple(i for i, d in enumerate(self._traced._program.donated) if d)
    )

    @property
    def in_avals(self):
        """Types of the arguments, with the explicit axes of `in_shardings`: `(positional, keyword)` trees."""
        program = self._traced._program
        avals = [
            a if s is None else a.update(sharding=type_sharding(s, a.ndim))
            for a, s in zip(program.in_avals, program.in_shardings)
        ]
        return tree.tree_unflatten(program.in_tree, avals)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """Return the global program as text: `stablehlo` (the default), `hlo`, or `jaxpr`.

        With `debug_info` the first two include the user's source location of each operation.
        """
        program = self._traced._program
        if dialect == "jaxpr":
            return str(program.jaxpr)
        jaxpr, is_used = self._traced._remove_unused(without_partitions(self._jaxpr))
        shardings = [
            s.sharding if s.committed else None for s, keep in zip(self.in_specs, is_used) if keep
        ]
        donated = [d for d, keep in zip(program.donated, is_used) if keep]
        if dialect in (None, "stablehlo"):
            from weft._engine.hlo.text.stablehlo import stablehlo_text

            names = [name for name, keep in zip(program.arg_names, is_used) if keep]
            return stablehlo_text(
                jaxpr,
                program.name,
                shardings,
                program.out_shardings,
                donated,
                debug_info,
                arg_names=names,
                result_paths=result_paths(program.out_tree),
            )
        if dialect == "hlo":
            from weft._engine.hlo.text.hlo_text import lowered_text

            return lowered_text(
                jaxpr, program.name, shardings, program.out_shardings, donated, debug_info
            )
        raise ValueError(
            f"lower().as_text: unknown dialect {dialect!r}; use 'stablehlo', 'hlo' or 'jaxpr'."
        )

    def compiler_ir(self, dialect: str | None = None):
        """Return the program's text in a dialect, as an object that prints as the text."""
        from weft._engine.hlo.text.program_text import ProgramText

        placed = self.as_text(dialect, debug_info=True) if dialect == "hlo" else None
        return ProgramText(self.as_text(dialect), f"jit_{self._traced.fun_name}", placed)

    def compile(
        self, compiler_options=None, *, device_assignment: Sequence[Device] | None = None, **_kwargs
    ) -> "Compiled":
        """Compile for these layouts.

        `compiler_options` are XLA's: PJRT plugins take them; on the CPU they are checked and have no effect. `device_assignment`, the
        devices in order, must equal the shardings' devices; ValueError otherwise.
        """
        backends.get(self._traced._jitted.options.backend).check_compiler_options(
            "compile", compiler_options
        )
        if device_assignment is not None:
            self._check_devices(tuple(device_assignment))
        program = self._traced._program
        consts, specs = self._constants()
        options = {
            **(self._traced._jitted.options.compiler_options or {}),
            **(compiler_options or {}),
        }
        with Override(compiler_options=tuple(sorted(options.items()))):
            backend = self._traced._jitted.options.backend
            executable = executable_for(self._jaxpr, specs, program.options(backend))
        executable.out_tree, executable.loaded.module = (
            program.out_tree,
            function_module(self._traced._jitted.fun),
        )
        return Compiled.make(self, executable, consts)

    def _constants(self) -> tuple[list[Array], tuple[ArraySpec, ...]]:
        """Return the constants, and the array specs of the constants and the arguments."""
        consts = const_arrays(self._jaxpr)
        return consts, (*[c._spec for c in consts], *self.in_specs)

    def compile_request(self) -> CompileRequest:
        """Return the request that `compile` sends to the compiler."""
        backend = self._traced._jitted.options.backend
        options = self._traced._program.options(backend)
        return request_of(self._jaxpr, self._constants()[1], options)

    def _check_devices(self, assignment: tuple[Device, ...]) -> None:
        own = next((s.sharding.device_assignment for s in self.in_specs if s.committed), assignment)
        if tuple(own) != assignment:
            raise ValueError(
                "device_assignment passed to compile must match the shardings of arguments: they are on "
                f"devices {[d.id for d in own]}, got {[d.id for d in assignment]}. Leave device_assignment out."
            )

    def cost_analysis(self) -> dict[str, float]:
        """Return floating point operations, transcendental functions and bytes accessed of the global program, before fusion."""
        from weft._engine.hlo.cost import module_cost
        from weft._engine.hlo.text.hlo_text import lower_global

        return module_cost(lower_global(without_partitions(self._jaxpr), self._traced.fun_name))


class MemoryStats:
    """Bytes of one call of a compiled program on a device with its own memory."""

    def __init__(self, **facts: int):
        self.__dict__.update(facts)

    def __repr__(self) -> str:
        return (
            "CompiledMemoryStats(" + ", ".join(f"{k}={v}" for k, v in self.__dict__.items()) + ")"
        )


#: name -> value, as in `compile(compiler_options=...)`
CompilerOptions = dict[str, str | bool]


class Compiled(metaclass=Sealed):
    """A compiled program: call it with arguments of exactly the types and layouts it was compiled for.

    >>> compiled = weft.jit(lambda x: x + 1).lower(2.0).compile()
    >>> float(compiled(2.0)), float(compiled.call(2.0)), compiled.in_avals
    (3.0, 3.0, ((ShapedArray(float32[], weak_type=True),), {}))
    >>> "add(" in compiled.as_text()
    True
    """

    __module__ = "weft.stages"

    _created_by = "weft.jit(f).lower(...).compile()"

    def __init__(self, lowered: Lowered, executable, consts):
        self._lowered, self._executable, self._consts = lowered, executable, consts

    in_tree = property(lambda self: self._lowered.in_tree)
    out_tree = property(lambda self: self._lowered.out_tree)
    in_avals = property(lambda self: self._lowered.in_avals)
    args_info = property(lambda self: self._lowered.args_info)
    donate_argnums = property(lambda self: self._lowered.donate_argnums)

    @property
    def out_info(self):
        """Shapes, dtypes and shardings of the results, as a tree."""
        leaves, structure = tree.tree_flatten(self._lowered.out_info)
        return structure.unflatten(
            [
                s.update(sharding=spec.sharding if spec.order is None else format_of(spec))
                for s, spec in zip(leaves, self._executable.out_specs)
            ]
        )

    @property
    def stages(self):
        """The program at every stage of compilation."""
        return self._executable.stages

    @property
    def arg_names(self) -> tuple[str, ...]:
        """The names of the program's inputs: constants, which come first, and the leaves of arguments."""
        return self._executable.arg_names

    @property
    def input_shardings(self):
        """Layouts of the arguments: `(positional, keyword)` trees."""
        specs = self._executable.in_specs[len(self._consts) :]
        return tree.tree_unflatten(self.in_tree, [s.sharding for s in specs])

    @property
    def output_shardings(self):
        """Layouts of the results, as a tree."""
        return tree.tree_unflatten(self.out_tree, [s.sharding for s in self._executable.out_specs])

    @property
    def input_formats(self):
        """Layouts in memory and shardings of the arguments: `(positional, keyword)` trees of `Format`."""
        specs = self._executable.in_specs[len(self._consts) :]
        return tree.tree_unflatten(self.in_tree, [format_of(s) for s in specs])

    @property
    def output_formats(self):
        """Layouts in memory and shardings of the results, as a tree of `Format`."""
        return tree.tree_unflatten(
            self.out_tree, [format_of(s) for s in self._executable.out_specs]
        )

    def as_text(self) -> str:
        """Return the program of one device, with its kernels and collectives, as HLO."""
        from weft._engine.hlo.compiled_hlo import compiled_text

        return compiled_text(self._executable, self._lowered._traced._jitted.options.keep_unused)

    def cost_analysis(self) -> dict[str, float]:
        """Return floating point operations, transcendental functions and bytes accessed of the program of one device, after fusion.

        Estimates are the plugin's if a PJRT plugin compiled the program and reports any.
        """
        estimates = self._executable.loaded.cost()
        if estimates is not None:
            return estimates
        from weft._engine.hlo.compiled_hlo import fused_module
        from weft._engine.hlo.cost import module_cost

        return module_cost(fused_module(self.stages))

    def memory_analysis(self) -> MemoryStats:
        """Return bytes of arguments, results, aliases, temporaries and their peak on one device, and the process's temporaries.

        The numbers are the plugin's if a PJRT plugin compiled the program.
        """
        e = self._executable
        reported = e.loaded.memory()
        if reported is not None:
            return MemoryStats(**reported)
        local = lambda specs: sum(s.nbytes // max(1, _count(s)) for s in specs)
        devices = e.in_specs[0].sharding.device_assignment if e.in_specs else ()
        n = max(1, sum(d.process_index == d.client.process_index() for d in devices))
        arguments, results, shared = (
            local(e.in_specs),
            local(e.out_specs),
            local([e.out_specs[i] for i in e.aliases]),
        )
        temporary = -(-e.arena_bytes // n)
        return MemoryStats(
            argument_size_in_bytes=arguments,
            output_size_in_bytes=results,
            alias_size_in_bytes=shared,
            temp_size_in_bytes=temporary,
            generated_code_size_in_bytes=0,
            host_temp_size_in_bytes=e.arena_bytes,
            peak_memory_in_bytes=arguments + results - shared + temporary,
        )

    def runtime_executable(self):
        """Return the executable that calls run."""
        return self._executable

    def __call__(self, *args, **kwargs):
        """Run the program.

        Raise TypeError if the structure, a shape or a dtype differs from the compiled ones, ValueError if the sharding or the dim order of
        a committed array does.
        """
        refs = self._lowered._traced._refs
        return self._run(args, kwargs) if refs is None else self._run_with_refs(refs, args, kwargs)

    def _run_with_refs(self, refs: Sequence[Ref], args: tuple, kwargs: dict) -> Any:
        leaves, structure = tree.tree_flatten((args, kwargs))
        passed = [x for x in leaves if is_ref(x)]
        args, kwargs = tree.tree_unflatten(structure, [x[...] if is_ref(x) else x for x in leaves])
        out, state, passed_values = self._run(([r[...] for r in refs], *args), kwargs)
        for r, value in zip([*refs, *passed], [*state, *passed_values]):
            r[...] = value
        return out

    def _run(self, args: tuple, kwargs: dict) -> Any:
        leaves, in_tree = flatten((args, kwargs), f"jit({self._lowered._traced._program.name})")
        if in_tree != self.in_tree:
            raise TypeError(
                "Function compiled with input pytree does not match the input pytree it was called with: compiled for "
                "arguments of "
                f"structure {self.in_tree}, called with {in_tree}."
                f"{tree.describe_difference(self.in_tree, in_tree, 'compiled', 'called')}"
            )
        tracers = [x for x in leaves if isinstance(x, Tracer)]
        if tracers:
            raise TypeError(
                f"jit({self._lowered._traced._program.name}): Cannot apply JAX transformations to a function lowered and "
                f"compiled for a particular signature. Detected a {type(tracers[0]).__name__}: {tracers[0]!r}.\n  Apply "
                "transformations to the jitted function, "
                "before lower() and compile()."
            )
        arrays = [to_array(x) for x in leaves]
        wrong = [
            (name, spec.aval.str_short(), x.aval.str_short())
            for name, x, spec in zip(
                self._lowered._traced._program.arg_names,
                arrays,
                self._executable.in_specs[len(self._consts) :],
            )
            if x.aval.shape != spec.aval.shape or x.aval.dtype != spec.aval.dtype
        ]
        if wrong:
            raise TypeError(
                "Argument types differ from the types for which this computation was compiled. The mismatches "
                "are:\n"
                + "\n".join(
                    f"Argument '{name}' compiled with {spec} and called with {actual}"
                    for name, spec, actual in wrong
                )
            )
        specs = self._executable.in_specs[len(self._consts) :]
        moves = self._lowered._traced._jitted.options.device is not None
        for leaf, x, spec in zip(leaves, arrays, specs):
            if leaf is x and x._spec is not spec and x.committed:
                if x._spec.order != spec.order:
                    self._refuse_layouts(arrays, specs)
                if not (
                    moves
                    or x.sharding is spec.sharding
                    or x.sharding.is_equivalent_to(spec.sharding, x.ndim)
                ):
                    self._refuse_shardings(arrays, specs)
        return tree.tree_unflatten(self.out_tree, self._executable([*self._consts, *arrays]))

    def _refuse_layouts(self, arrays: Sequence[Array], specs: Sequence[ArraySpec]) -> None:
        names = self._lowered._traced._program.arg_names
        wrong = [
            f"argument {name} of type {x.aval.str_short()}: stored with major_to_minor={x.format.layout.major_to_minor}, compiled for "
            f"{format_of(spec).layout.major_to_minor}"
            for name, x, spec in zip(names, arrays, specs)
            if x._spec.order != spec.order
        ]
        raise ValueError(
            spell_names(
                "Computation was compiled for input layouts that disagree with the layouts of arguments passed to it.\n  "
                + "\n  ".join(wrong)
                + "\n  Move the arrays to compiled.input_formats with weft.device_put(x, format)."
            )
        )

    def _refuse_shardings(self, arrays: Sequence[Array], specs: Sequence[ArraySpec]) -> None:
        names = self._lowered._traced._program.arg_names
        wrong = [
            f"argument {name} of type {x.aval.str_short()}: laid out by {x.sharding}, compiled for {spec.sharding}"
            for name, x, spec in zip(names, arrays, specs)
            if x.committed and not x.sharding.is_equivalent_to(spec.sharding, x.ndim)
        ]
        raise ValueError(
            spell_names(
                "Computation was compiled for input shardings that disagree with the shardings of arguments passed to it.\n  "
                + "\n  ".join(wrong)
                + "\n  Move the arrays to compiled.input_shardings with weft.device_put(x, sharding), "
                "or call the jitted function, which compiles for other shardings."
            )
        )

    call = __call__


def _count(spec: ArraySpec) -> int:
    """Return the number of distinct shards of an array."""
    return math.prod(spec.splits)
