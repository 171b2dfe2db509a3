"""Executable: a compiled program ready to be called with arrays.

In:   a backend's loaded program, the array specs of arguments and results.
Out:  arrays. This module converts arguments to the expected layout and wraps results; the backend runs the program.
"""

from __future__ import annotations

import copy
import math
import operator
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np

from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import Backend, LoadedLocalProgram
from weft._engine.core.trace import trace_state
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.mesh import AUTO
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.runtime.array import Array, spec_of
from weft._engine.runtime.placement import change_layout, is_compatible
from weft._engine.util import events
from weft._engine.util.config import config
from weft._engine.util.errors import DeviceRuntimeError, OutOfMemoryError
from weft._engine.util.record import record
from weft._engine.util.source import user_frame

_buffer_of = operator.attrgetter("_buffer")


def _stored_spec(
    spec: ArraySpec, order: tuple[int, ...] | None, sharding: Sharding | None
) -> ArraySpec:
    """Return `spec` with dims stored in `order`, in the same memory, and with the sharding `sharding` if that is an equivalent placement."""
    reordered = spec.with_order(order)
    if order is None:
        return reordered
    if (
        sharding is None
        and isinstance(reordered.sharding, NamedSharding)
        and not reordered.sharding.mesh.explicit_axes
    ):
        sharding = reordered.sharding.with_spec(reordered.sharding.spec.without_trailing())
    if sharding is None or not sharding.is_equivalent_to(reordered.sharding, reordered.aval.ndim):
        return reordered
    return ArraySpec(reordered.aval, sharding, reordered.committed, order)


@record
class CompileRequest:
    """A program without constants, for inputs with the array specs `in_specs` on the devices `assignment`.

    Array specs may name devices of another backend; devices of `backend` have the same ids. Outputs without a sharding get the one that
    propagation determines. On a mesh with explicit axes, outputs whose types have no sharding keep these axes; with a mesh in context
    (`in_context`), such axes are automatic. With `automatic`, a search chooses the unspecified shardings. Uncommitted inputs may be moved;
    committed inputs are read where they are.
    """

    jaxpr: Jaxpr
    in_specs: Sequence[ArraySpec]
    out_shardings: Sequence[Sharding | None]
    donated: Sequence[int]
    name: str
    assignment: tuple
    in_context: bool
    backend: Backend
    automatic: AUTO | None = None


class Executable:
    """A loaded program, called with and returning flat lists of arrays."""

    __slots__ = (
        "name",
        "in_specs",
        "out_specs",
        "donated",
        "loaded",
        "collective_count",
        "const_inputs",
        "arg_names",
        "out_tree",
        "check_results",
        "verifier",
        "request",
        "_stages",
        "__weakref__",
    )
    request: CompileRequest  # set by `programs`

    def __init__(
        self,
        name: str,
        loaded: LoadedLocalProgram,
        in_specs: Sequence[ArraySpec],
        out_specs: Sequence[ArraySpec],
        donated: Sequence[int],
        collective_count: int,
        stages: Any,
    ):
        self.name = name
        self.in_specs = tuple(in_specs)
        self.out_specs = tuple(out_specs)
        self.donated = tuple(donated)
        self.loaded = loaded
        self.collective_count = collective_count
        self._stages = stages  # or a function that computes them
        # called with (name, program, arguments, results, line of the call) after a run
        self.check_results: Callable | None = None
        # runs and compares calls instead of this object (`verification.values`)
        self.verifier: Callable | None = None
        # constants of the program that are passed as its first inputs
        self.const_inputs: list[Array] = []
        self.arg_names: Sequence[str] = ()  # of all inputs, for reports
        self.out_tree: Any = None  # the structure of the results, for reports

    @property
    def stages(self) -> Any:
        """The program at every stage of compilation."""
        if callable(self._stages):
            self._stages = self._stages()
        return self._stages

    @property
    def kernel_count(self) -> int:
        """The number of kernels that a call runs."""
        return self.loaded.kernel_count

    @property
    def aliases(self) -> Mapping[int, int]:
        """Result number -> number of the donated argument whose memory it reuses."""
        return self.loaded.aliases

    @property
    def arena_bytes(self) -> int:
        """Bytes of temporaries."""
        return self.loaded.temporary_bytes

    @property
    def peak_bytes(self) -> int:
        """Peak bytes of simultaneously live inputs, outputs, constants and temporaries."""
        loaded = self.loaded
        unaliased = [s for i, s in enumerate(self.out_specs) if i not in loaded.aliases]
        return (
            sum(s.storage_bytes for s in (*self.in_specs, *unaliased))
            + loaded.constant_bytes
            + loaded.temporary_bytes
        )

    def hlo_modules(self) -> list[Any]:
        """Return the program of one device as HLO, in a list of one. It prints, and has a `name` and `to_string()`.

        >>> (module,) = weft.jit(wnp.sin).lower(1.0).compile().runtime_executable().hlo_modules()
        >>> module.name, "sine(" in module.to_string()
        ('jit_sin', True)
        """
        from weft._engine.hlo.compiled_hlo import compiled_text
        from weft._engine.hlo.text.program_text import ProgramText

        return [ProgramText(compiled_text(self), self.name.replace("(", "_").rstrip(")"))]

    def on_orders(
        self,
        ins: Sequence[tuple[int, ...] | None],
        outs: Sequence[tuple[int, ...] | None],
        of_ins: Sequence[Sharding],
        of_outs: Sequence[Sharding | None],
    ) -> Executable:
        """Make it take and return arrays stored in these dim orders, whose memory the program uses unchanged; return it. `of_ins` and
        `of_outs` are the shardings that the user passed, None where there is none."""
        self.in_specs = tuple(map(_stored_spec, self.in_specs, ins, of_ins))
        self.out_specs = tuple(map(_stored_spec, self.out_specs, outs, of_outs))
        return self

    def with_input_specs(
        self, known: Sequence[ArraySpec], others: Sequence[ArraySpec]
    ) -> Executable:
        """Return the same program for inputs of the array specs `others`, which are placed like `known`, the compiled specs."""
        executable = copy.copy(self)
        executable.in_specs = tuple(
            [
                other if spec is one else spec
                for spec, one, other in zip(self.in_specs, known, others, strict=True)
            ]
        )
        return executable

    def read_stored_values(
        self, arrays: Sequence[Array], specs: Sequence[ArraySpec]
    ) -> list[np.ndarray]:
        """Return the values that the program computes with, for arguments or results with the given array specs."""
        placed = [
            x if is_compatible(x._spec, spec) else change_layout(x, spec)
            for x, spec in zip(arrays, specs)
        ]
        return [Array(spec.stored, x._live())._numpy() for x, spec in zip(placed, specs)]

    def __call__(
        self, args: Sequence[Array], is_verified: bool = False, may_queue: bool = True
    ) -> list[Array]:
        """Run the program. The verifier sets `is_verified` in its own calls, which run before it continues."""
        if self.verifier is not None and not is_verified:
            return self.verifier(self, args)
        if config.no_execution:
            raise RuntimeError(f"{self.name} would run, but config.no_execution is set.")
        if self.donated:
            self._check_donated_once(args)
        self._forget_aliased(args)
        start = time.perf_counter_ns() if events.listeners else 0
        placed = args
        if not all(map(operator.is_, map(spec_of, args), self.in_specs)):
            placed = self._place_arguments(args)
        buffers = [*map(_buffer_of, placed)]
        types = {*map(type, buffers)}
        if NoneType in types:
            buffers = [x._checked_buffer() for x in placed]  # raises: one is deleted
        check = self._check_of_call()
        outs = None if start or not may_queue else self.loaded.start(buffers, Array, check)
        if outs is None:
            if types != {self.loaded.buffer_type}:
                buffers = [x._live() for x in placed]
            outs = self._run(buffers, args, check, start)
        self._delete_donated(args)
        return [Array(spec, buffer) for spec, buffer in zip(self.out_specs, outs)]

    def _place_arguments(self, args: Sequence[Array]) -> list[Array]:
        """Return the arguments in the layouts that the program expects."""
        return [
            x if is_compatible(x._spec, spec) else change_layout(x, spec)
            for x, spec in zip(args, self.in_specs)
        ]

    def _check_donated_once(self, args: Sequence[Array]) -> None:
        """Raise DeviceRuntimeError if a donated array is passed twice."""
        counts = Counter(map(id, args[len(self.const_inputs) :]))
        for i in self.donated:
            if counts[id(args[i])] > 1:
                raise DeviceRuntimeError(
                    f"{self.name}: {self.arg_names[i]} is donated and is passed twice; a donated array must not be "
                    "used again in the same call.\n  Pass a copy (x.copy()) or do not donate it."
                )

    def _run(
        self, buffers: list, args: Sequence[Array], check: Callable | None, start: int
    ) -> Sequence:
        """Run the program and return the buffers of its results. `start` is 0 unless runs are timed."""
        try:
            recorders = events.step_recorders
            loaded = recorders[-1](self) if recorders else self.loaded
            outs = loaded.run(buffers)
            if start:
                events.emit(
                    "run", self.name, start, time.perf_counter_ns(), kernels=self.kernel_count
                )
            if check is not None:
                check(buffers, outs)
            return outs
        except BaseException as error:
            self._delete_donated(args)  # their memory may hold partial results
            if type(error) is OutOfMemoryError:
                raise OutOfMemoryError(f"{error}\n{self._largest_arrays()}") from None
            raise

    def _forget_aliased(self, args: Sequence[Array]) -> None:
        """Drop the cached views of arguments whose memory the results reuse."""
        for i in self.loaded.aliases.values():
            args[i]._drop_views()

    def _check_of_call(self) -> Callable | None:
        """Return the function that checks the buffers of arguments and results after this call, perhaps in another thread."""
        check = self.check_results
        if check is None:
            return None
        program, line = self.stages.simplified, trace_state.source or user_frame()
        specs = [
            [spec if spec.order is None else spec.stored for spec in some]
            for some in (self.in_specs, self.out_specs)
        ]
        return lambda *buffers: check(
            self.name, program, *[list(map(Array, *pair)) for pair in zip(specs, buffers)], line
        )

    def _largest_arrays(self) -> str:
        """Describe the largest arguments, results and temporaries on one device, for errors."""
        bytes_of = lambda spec: math.prod(spec.local_shape) * spec.storage_dtype.itemsize
        names = [
            *self.arg_names,
            *[f"argument {i}" for i in range(len(self.arg_names), len(self.in_specs))],
        ]
        sizes = [
            (bytes_of(s), f"{name}: {s.aval.str_short()}") for name, s in zip(names, self.in_specs)
        ]
        sizes += [
            (bytes_of(s), f"result {i}: {s.aval.str_short()}")
            for i, s in enumerate(self.out_specs)
            if i not in self.loaded.aliases
        ]
        sizes.append(
            (
                (self.loaded.memory() or {}).get("temp_size_in_bytes", self.arena_bytes),
                "temporaries",
            )
        )
        rows = [
            f"    {n / 2**20:10.1f} MiB  {what}" for n, what in sorted(sizes, reverse=True)[:5] if n
        ]
        return "\n".join(["  The largest arrays of this call on one device:", *rows])

    def _delete_donated(self, args: Sequence[Array]) -> None:
        for i in self.donated:
            args[i].delete()
