"""The CPU backend: a compiler for this machine, whose virtual devices share the memory and the threads of one process.

In:   a local program.
Out:  a program of one native call, which runs all kernels, loops and collectives of all devices.
Laws: a buffer is one dense block that holds the distinct shards of an array in row-major order of their position in the grid of
      shards: shape [splits..., local dims...]. A shard that several devices hold is stored once, so equivalent shardings share
      memory, and an unsharded array is plain row-major memory. For an array over several processes a buffer holds the shards of this
      process, at the positions in `backends.process_blocks`. Importing this module loads nothing of the compiler.
Next: `buffer` manages memory, `compile` has the stages, `loaded_program` runs programs, `native_entries` is dispatch without Python.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from weft._engine import processes
from weft._engine.backends.array_spec import ArraySpec, from_blocks, to_blocks
from weft._engine.backends.base import Backend, Device, LoadedLocalProgram, LocalProgram, Stage
from weft._engine.backends.cpu.buffer import (
    HostBuffer,
    address,
    block_address,
    fill,
    memory_stats,
)
from weft._engine.backends.cpu.loaded_program import CpuProgram, Write, load
from weft._engine.codegen.runtime import pool, queue
from weft._engine.codegen.toolchain import loader, target
from weft._engine.hooks import PENDING_BUFFER_TYPES
from weft._engine.util.user_code_suspension import suspended

if TYPE_CHECKING:
    from weft._engine.backends.cpu.compile import CpuStages
    from weft._engine.compiler.schedule.schedule import Scheduled

pool.prewarm()

_C_TYPES = {
    np.dtype(name): getattr(ctypes, f"c_{c}").from_address
    for name, c in (
        ("bool", "bool"),
        ("float32", "float"),
        ("float64", "double"),
        *((k, k) for n in (8, 16, 32, 64) for k in (f"int{n}", f"uint{n}")),
    )
}


def _wait_for_block(contents: Any) -> Any:
    """Return a block of the native heap after waiting for its values."""
    if type(contents) in PENDING_BUFFER_TYPES:
        cast("queue.Queue", queue.current()).wait(contents)
    return contents


class CpuBackend(Backend):
    """Virtual devices of this process; programs are compiled to native code."""

    platform = "cpu"
    is_one_memory = True

    @property
    def device_prefix(self) -> str:
        return "TFRT_CPU"

    # ---- memory
    def string_backend(self) -> Backend:
        from weft._engine.backends.string_arrays import string_backend_for

        return string_backend_for(self)

    def memory_stats(self, device: Device) -> dict[str, int] | None:
        """Return the statistics of the process: its devices share one memory. None for devices of other processes."""
        return memory_stats() if device.is_addressable else None

    def allocate(self, spec: ArraySpec) -> HostBuffer:
        return HostBuffer(spec.storage_bytes)

    def put(self, value: np.ndarray, spec: ArraySpec, copy: bool = True) -> HostBuffer:
        return HostBuffer.from_numpy(to_blocks(value, spec), copy)

    def get(self, buffer: HostBuffer, spec: ArraySpec) -> np.ndarray:
        shards = from_blocks(buffer.view(spec.storage_dtype, spec.storage_shape), spec)
        whole = HostBuffer(spec.nbytes).view(shards.dtype, shards.shape)  # from the cache of blocks
        fill(whole, shards)
        return whole.reshape(spec.global_shape)

    def view(self, buffer: HostBuffer, spec: ArraySpec) -> np.ndarray | None:
        return buffer.view(spec.storage_dtype, spec.global_shape) if spec.is_row_major else None

    def scalar_reader(self, dtype: np.dtype) -> Callable[[Any], bool | int | float] | None:
        read = _C_TYPES.get(dtype)
        return read and (
            lambda held: (
                read(
                    held.ptr if type(held) is HostBuffer else block_address(_wait_for_block(held))
                ).value
            )
        )

    def put_blocks(self, blocks: np.ndarray, spec: ArraySpec) -> HostBuffer:
        return HostBuffer.from_numpy(blocks)

    def get_blocks(self, buffer: HostBuffer, spec: ArraySpec) -> np.ndarray:
        return buffer.view(spec.storage_dtype, spec.storage_shape)

    def shard(
        self, buffer: HostBuffer, spec: ArraySpec, position: tuple[int, ...], local: ArraySpec
    ) -> HostBuffer:
        number = 0
        for place, count in zip(position, spec.storage_shape):
            number = number * count + place
        return buffer.slice(number * local.nbytes, local.nbytes)

    def same_memory(self, have: ArraySpec, want: ArraySpec) -> bool:
        if have.by_process != want.by_process:
            return False
        return have.splits == want.splits or (have.is_row_major and want.is_row_major)

    def adopt(self, contents: Any, spec: ArraySpec) -> HostBuffer:
        """Wrap blocks of the native heap, which native dispatch puts into the arrays that it creates."""
        return (
            contents
            if type(contents) is HostBuffer
            else HostBuffer.of_block(_wait_for_block(contents), spec.storage_bytes)
        )

    def wait(self, contents: Any) -> None:
        if (running := queue.current()) is not None:
            running.wait(contents)

    def is_ready(self, contents: Any) -> bool:
        return (running := queue.current()) is None or running.is_ready(contents)

    def wait_for_effects(self, raising: bool) -> None:
        if (running := queue.current()) is not None:
            running.wait_for_effects()
            if raising:
                running.raise_unseen()

    def identity(self, contents: Any) -> int:
        return address(contents)

    # ---- programs
    def lower(self, program: LocalProgram, stage: Stage) -> CpuStages:
        with suspended:
            from weft._engine.backends.cpu import compile  # all of the compiler

        return compile.lower(program, stage)

    def compile(self, program: LocalProgram, lowered: CpuStages, stage: Stage) -> CpuProgram:
        from weft._engine.backends.cpu import compile

        return compile.compile_local(program, lowered, stage)

    def schedule(self, program: LocalProgram, lowered: CpuStages) -> Scheduled:
        with suspended:
            from weft._engine.backends.cpu import compile  # all of the compiler

        return compile.make_schedule(lowered.stacked, program.donated, has_origins=True)

    def with_records(
        self, loaded: LoadedLocalProgram, scheduled: Scheduled, receive: Callable[[Any], None]
    ) -> LoadedLocalProgram:
        if not isinstance(loaded, CpuProgram):
            return loaded  # it runs on devices of other processes
        with suspended:
            from weft._engine.backends.cpu.profiled_program import ProfiledCpuProgram

        return ProfiledCpuProgram(loaded, scheduled, receive)

    def load(self, code: bytes, lowered: Callable[[], CpuStages], write: Write) -> CpuProgram:
        return load(code, lowered, write)

    def cache_key(self) -> str | None:
        shared = processes.current()
        # the program depends on the devices of this process
        devices = "" if shared is None else f" {shared.local_counts}"
        return (
            f"cpu {target.current().identity} {pool.num_threads()}{devices}"
            if loader.supports_machine()
            else None
        )

    @contextlib.contextmanager
    def enter_compilation(self) -> Iterator[None]:
        # compile before the thread pool starts, but start it if this takes long
        pool.postpone_background_work(1)
        yield
        pool.postpone_background_work()
