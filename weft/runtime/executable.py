"""Executable: a compiled program ready to be called with arrays.

In:   a native program, what it needs of memory, the specs of its inputs and outputs.
Out:  arrays. One native call runs everything; this file only brings inputs into the expected layout and finds memory.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from weft.runtime.array import Array, ArraySpec, relaid
from weft.runtime.buffer import Buffer
from weft.util import events
from weft.util.record import record

_LONG_BYTES = 1 << 18        # about 20 µs of memory traffic


@record
class Plan:
    """What running a program needs to know beside its code. `aliases`: output number -> donated input number whose memory it takes."""
    consts: Sequence[np.ndarray]
    aliases: dict[int, int]
    arena_bytes: int
    kernel_count: int
    collective_count: int


class Executable:
    """A loaded program. Calling it takes and gives flat lists of arrays."""
    __slots__ = ("name", "in_specs", "out_specs", "donated", "native", "consts", "n_slots", "aliases", "arena_bytes", "kernel_count",
                 "collective_count", "const_inputs", "arg_names", "is_long", "check", "followers", "_stages", "_template", "__weakref__")

    def __init__(self, name: str, native, plan: Plan, in_specs: Sequence[ArraySpec], out_specs: Sequence[ArraySpec],
                 donated: Sequence[int], stages):
        self.name = name
        self.in_specs = tuple(in_specs)
        self.out_specs = tuple(out_specs)
        self.donated = tuple(donated)
        self.native = native
        self.consts = [Buffer.from_numpy(np.ascontiguousarray(c)) for c in plan.consts]
        self.aliases = dict(plan.aliases)
        self.arena_bytes = plan.arena_bytes
        self.kernel_count = plan.kernel_count
        self.collective_count = plan.collective_count
        self._stages = stages                           # or a function that computes them
        self.check: Callable | None = None              # looks at (name, program, arguments, results) after each call
        self.const_inputs: list[Array] = []             # constants of the program that are passed as its first inputs
        self.arg_names: Sequence[str] = ()              # of all inputs, for reports
        traffic = sum(s.nbytes for s in (*self.in_specs, *self.out_specs)) + self.arena_bytes
        # worth letting other Python threads run; while a host call runs they may, and arguments must be held
        self.is_long = traffic > _LONG_BYTES or native.takes_long
        self.n_slots = len(self.in_specs) + len(self.out_specs) + len(self.consts) + 1
        self._template = ctypes.c_void_p * self.n_slots
        self.followers: list[Callable[[int], None]] = []    # who is told of the address when other code takes over
        if native.draft is not None:
            me = weakref.ref(self)
            native.draft.then.append(lambda better: _replace(me(), better))

    @property
    def stages(self):
        """The program at every stage of its compilation."""
        if callable(self._stages):
            self._stages = self._stages()
        return self._stages

    @property
    def peak_bytes(self) -> int:
        """Bytes of inputs, outputs, constants and temporaries that are live at once, at most."""
        return (sum(s.nbytes for s in self.in_specs) + sum(s.nbytes for i, s in enumerate(self.out_specs) if i not in self.aliases)
                + sum(c.nbytes for c in self.consts) + self.arena_bytes)

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        native, ins = self.native, []
        if native.draft is not None:
            native.draft.called()
        for array, spec in zip(args, self.in_specs):
            if array._spec is not spec and array._spec.splits != spec.splits:
                array = relaid(array, spec.sharding)
            ins.append(array._live())
        for i in self.aliases.values():
            args[i]._forget()
            if not ins[i].is_held_only_by(2):       # by its array and by `ins`; else someone would see the results in it
                ins[i] = ins[i].copy()
        outs = [ins[self.aliases[i]] if i in self.aliases else Buffer(spec.nbytes) for i, spec in enumerate(self.out_specs)]
        arena = Buffer(self.arena_bytes) if self.arena_bytes else None
        slots = self._template(*[b.ptr for b in ins], *[b.ptr for b in outs], *[c.ptr for c in self.consts],
                               arena.ptr if arena is not None else None)
        start = time.perf_counter_ns() if events.watchers else 0
        failed = native.call(slots)
        if start:
            events.tell("run", self.name, start, time.perf_counter_ns(), kernels=self.kernel_count)
        results = [Array(spec, buffer) for spec, buffer in zip(self.out_specs, outs)]
        if self.check is not None and not failed:
            self.check(self.name, self.stages.simplified, args, results)
        for i in self.donated:                       # after a failure too: their memory may hold half of a result
            args[i].delete()
        if failed:
            native.raise_error()
        return results


def _replace(executable: Executable | None, better) -> None:
    """From now on other code does the same."""
    if executable is not None:
        executable.native = better
        for tell in executable.followers:
            tell(better.entry)
