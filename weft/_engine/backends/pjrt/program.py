"""A program on the devices of a plugin: one replica of the local program on each.

In:   the program that the plugin compiled, and facts about the `LocalProgram`.
Out:  `PjrtProgram`, a function from `ShardBuffers` to `ShardBuffers`.
Laws: a call enqueues the program and returns before its results are computed.
"""

from __future__ import annotations

import ctypes
import functools
import marshal
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from weft._engine.backends.array_spec import ArraySpec, to_blocks
from weft._engine.backends.base import LoadedLocalProgram, LocalProgram
from weft._engine.backends.host_calls import Execution, MeshHostCall
from weft._engine.backends.pjrt.buffers import ShardBuffers, put_blocks
from weft._engine.backends.pjrt.c_api import struct
from weft._engine.backends.pjrt.client import CompiledProgram, LoadedProgram
from weft._engine.backends.pjrt.native import ProgramCall
from weft._engine.hlo.replica_program import donations
from weft._engine.util.record import record


@record
class ProgramFacts:
    """The facts about a local program that its execution depends on; plain data, stored on disk.

    `donations` pairs each donated argument with the result that reuses its memory, or None.
    """

    num_devices: int
    num_args: int
    donations: tuple[tuple[int, int | None], ...]
    has_effects: bool


def facts_of(program: LocalProgram) -> ProgramFacts:
    """Return the facts about a local program."""
    return ProgramFacts(
        len(program.device_ids),
        len(program.ins),
        tuple(donations(program).items()),
        bool(program.jaxpr.effects) or not program.outs,
    )


def aliases_of(donations: Iterable[tuple[int, int | None]]) -> dict[int, int]:
    """Return result number -> number of the argument whose memory it reuses."""
    return {result: arg for arg, result in donations if result is not None}


def find_unsplit_results(program: LocalProgram) -> dict[int, ArraySpec]:
    """Return the array specs of results that every device computes whole but that are stored split, by number."""
    return {i: x.spec for i, x in enumerate(program.outs) if x.blocks is not None}


def prepare_call(
    program: LoadedProgram, num_devices: int, num_args: int, kept_args: Sequence[int]
) -> ProgramCall:
    """Return the constant part of calls; arguments whose numbers are in `kept_args` are not donated."""
    kept_numbers = (ctypes.c_int64 * max(len(kept_args), 1))(*kept_args)
    options = struct("ExecuteOptions", kept=ctypes.addressof(kept_numbers), num_kept=len(kept_args))
    args = struct(
        "LoadedExecutable_Execute",
        executable=program.pointer,
        options=ctypes.addressof(options),
        num_devices=num_devices,
        num_args=num_args,
    )
    execute = program.client.library.addresses["LoadedExecutable_Execute"]
    call = ProgramCall(execute, ctypes.addressof(args), num_devices, num_args, program.num_results)
    call.pointed_to = kept_numbers, options, args
    return call


class ReportedProgram(LoadedLocalProgram):
    """A program whose costs, memory and optimized text its plugin reports."""

    compiled: CompiledProgram

    def cost(self) -> dict[str, float] | None:
        return self.compiled.cost()

    def memory(self) -> dict[str, int] | None:
        return self.compiled.memory()

    def text(self) -> str | None:
        from weft._engine.hlo.text.hlo_proto import optimized_text

        form, code = self.compiled.optimized_program()
        return optimized_text(code) if form == "hlo_with_config" else None


class PjrtProgram(ReportedProgram):
    """A compiled program, ready to run."""

    buffer_type = ShardBuffers

    def __init__(
        self,
        backend: Any,
        loaded: LoadedProgram,
        facts: ProgramFacts,
        unsplit_results: Mapping[int, ArraySpec] = MappingProxyType({}),
        host_calls: Sequence[MeshHostCall] = (),
    ) -> None:
        self.loaded, self.compiled = loaded, loaded.compiled
        self.facts = facts
        self.aliases = aliases_of(facts.donations)
        self._unsplit_results = unsplit_results
        self._host_calls = host_calls  # the handler refers to them weakly
        self._backend = backend
        self._client = loaded.client
        self._native = loaded.client.library.native
        devices, undonated = (
            facts.num_devices,
            {*range(facts.num_args)} - dict(facts.donations).keys(),
        )
        self._call = prepare_call(loaded, devices, facts.num_args, sorted(undonated))
        # XLA's CPU client runs the replicas of one program on as many threads as there are devices:
        # if two programs run at once, their collectives wait for each other's threads
        is_threaded = devices > 1 and self._client.platform_name == "cpu"
        self.is_serial = is_threaded or bool(host_calls)  # host calls of programs are ordered
        self._is_alone = devices == 1 and not host_calls
        self._donated = [arg for arg, _ in facts.donations]
        self._operands_type = ctypes.c_void_p * max(facts.num_args, 1)
        self._results_type = ctypes.c_void_p * max(loaded.num_results * devices, 1)
        self._result_offsets = [8 * devices * i for i in range(loaded.num_results)]

    @functools.cached_property
    def _copying_call(self) -> ProgramCall:
        """A call that preserves the memory of all arguments."""
        facts = self.facts
        return prepare_call(self.loaded, facts.num_devices, facts.num_args, range(facts.num_args))

    def run(self, buffers: list[ShardBuffers]) -> list[ShardBuffers]:
        """Enqueue the program; return its results."""
        if self._is_alone:
            return self._run(buffers)
        if self._backend.host_calls.is_inside:
            return self._run_inside(buffers)
        if self.is_serial:
            with self._backend.serial_lock:
                self._backend.wait_for_serial()
                return self._run(buffers)
        return self._run(buffers)

    def _run_inside(self, buffers: list[ShardBuffers]) -> list[ShardBuffers]:
        """Run the program in a callback; other devices may be waiting for the callback."""
        if self.facts.num_devices > 1:
            raise RuntimeError(
                f"A callback called a program on {self.facts.num_devices} devices of PJRT plugin "
                f"{self._client.library.name!r}, which may wait for the callback. Compute it on one "
                "device: callbacks receive arrays on the CPU."
            )
        return self._run(buffers)

    def _run(self, buffers: list[ShardBuffers]) -> list[ShardBuffers]:
        client, devices = self._client, self.facts.num_devices
        call = self._call
        for arg in self._donated:
            if not buffers[arg].is_held_by_one_array():  # other arrays would read the result in it
                call = self._copying_call
        if self._host_calls and devices > 1:
            self._backend.host_calls.execution = Execution()
        operands = self._operands_type(*[shards.address for shards in buffers])
        block = self._results_type()
        has_events = self.facts.has_effects or self.is_serial
        events = (ctypes.c_void_p * devices)() if has_events else None
        error = self._native.execute(ctypes.addressof(call), operands, block, events)
        if error:
            raise client.library.error(error, "LoadedExecutable_Execute")
        if events is not None:
            self._backend.add_running(self, [event for event in events if event])
        first = ctypes.addressof(block)
        results = [ShardBuffers(client, block, first + at, devices) for at in self._result_offsets]
        for number, spec in self._unsplit_results.items():
            results[number] = self._split(results[number], spec)
        return results

    def _split(self, buffers: ShardBuffers, spec: ArraySpec) -> ShardBuffers:
        """Split a result that each device has whole into the shards of its array spec."""
        whole = np.empty(spec.global_shape, spec.storage_dtype)
        event = self._client.start_copy_to_host(buffers.pointers()[0], whole)
        self._client.library.wait(event)
        return put_blocks(self._client, to_blocks(whole, spec), spec)

    def store(self, write: Callable[[Callable[[], bytes | None]], None]) -> None:
        """Store the serialized program."""
        facts = self.facts
        if self._unsplit_results or self._host_calls:
            return

        def serialize() -> bytes | None:
            try:
                code = self.compiled.serialize()
            except (NotImplementedError, RuntimeError):  # the plugin cannot serialize it
                return None
            fields = facts.num_devices, facts.num_args, facts.donations, facts.has_effects
            return marshal.dumps((*fields, code))

        write(serialize)
