"""A program on the devices of a plugin: one replica of the local program on each.

In:   the program that the plugin compiled, and facts of the `LocalProgram`.
Out:  `PjrtProgram`, from `ShardBuffers` to `ShardBuffers`.
Laws: a call enqueues the program; its results get their values later.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from weft.backends.array_spec import ArraySpec
from weft.backends.base import Loaded, LocalProgram
from weft.backends.pjrt.buffers import ShardBuffers, put_value
from weft.backends.pjrt.client import CallFrame, CompiledProgram, DeviceBuffer, LoadedProgram
from weft.hlo.replica_program import donations
from weft.util.record import record


@record
class ProgramFacts:
    """The facts of a local program that its execution depends on; plain data, kept on disk.

    `donations` pairs each donated argument with the result that takes its memory, or None.
    """

    num_devices: int
    num_args: int
    donations: tuple[tuple[int, int | None], ...]
    has_effects: bool


def facts_of(program: LocalProgram) -> ProgramFacts:
    """Return the facts of a local program."""
    return ProgramFacts(
        len(program.device_ids),
        len(program.ins),
        tuple(donations(program).items()),
        bool(program.jaxpr.effects) or not program.outs,
    )


def find_unsplit_results(program: LocalProgram) -> dict[int, ArraySpec]:
    """Return the results that each device computes whole and whose specs split them."""
    return {i: x.spec for i, x in enumerate(program.outs) if x.blocks is not None}


class ReportedProgram(Loaded):
    """A program whose costs, memory and optimized text its plugin reports."""

    compiled: CompiledProgram

    def cost(self) -> dict[str, float] | None:
        return self.compiled.cost()

    def memory(self) -> dict[str, int] | None:
        return self.compiled.memory()

    def text(self) -> str | None:
        from weft.hlo.hlo_proto import optimized_text

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
    ) -> None:
        self.loaded, self.compiled = loaded, loaded.compiled
        self.facts = facts
        self.aliases = {result: arg for arg, result in facts.donations if result is not None}
        self._unsplit_results = unsplit_results
        self._backend = backend
        self._client = loaded.client
        self._execute = loaded.client.library.functions["LoadedExecutable_Execute"]
        self._frames: list[CallFrame] = []

    def _new_frame(self) -> CallFrame:
        facts = self.facts
        kept = sorted({*range(facts.num_args)} - dict(facts.donations).keys())
        frame = CallFrame(self.loaded, facts.num_devices, facts.num_args, kept)
        if facts.has_effects:
            frame.ask_for_events()
        return frame

    def run(self, buffers: list[ShardBuffers]) -> list[ShardBuffers]:
        """Enqueue the program; return its results."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        for device, row in enumerate(frame.arguments):
            row[:] = [shards[device].pointer for shards in buffers]
        error = self._execute(frame.address)
        client = self._client
        if error:
            raise client.library.error(error, "LoadedExecutable_Execute")
        if self.facts.has_effects:
            self._backend.add_running([event for event in frame.events if event])
        columns = zip(*frame.results)
        results = [ShardBuffers([DeviceBuffer(client, p) for p in column]) for column in columns]
        self._frames.append(frame)
        for number, spec in self._unsplit_results.items():
            results[number] = self._split(results[number], spec)
        return results

    def _split(self, buffers: ShardBuffers, spec: ArraySpec) -> ShardBuffers:
        """Cut a result that each device holds whole into the shards of its spec."""
        whole = np.empty(spec.global_shape, spec.storage_dtype)
        self._client.library.wait(buffers[0].start_copy_to_host(whole))
        return put_value(self._client, whole, spec)

    def keep(self, write: Callable[[Callable[[], bytes | None]], None]) -> None:
        """Store the serialized program."""
        facts = self.facts
        if self._unsplit_results:
            return

        def serialize() -> bytes | None:
            try:
                code = self.compiled.serialize()
            except (NotImplementedError, RuntimeError):  # the plugin cannot
                return None
            fields = facts.num_devices, facts.num_args, facts.donations, facts.has_effects
            return marshal.dumps((*fields, code))

        write(serialize)
