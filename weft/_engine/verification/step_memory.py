"""The memory of a scheduled program that runs step by step, with guard bytes around every buffer.

In:   a scheduled program and the contents of its inputs.
Out:  the bytes of each slot, the addresses for native code, and a description of overwritten
      guards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine.ir import program as P

#: bytes of guard before and after each buffer outside of the arena
GUARD = 4096
PATTERN = 0xA7
#: the byte that fills unwritten memory
UNWRITTEN = 0xA5


class StepMemory:
    """The buffers of one run of `scheduled`."""

    def __init__(
        self, scheduled: Any, inputs: Sequence[np.ndarray], out_bytes: Sequence[int]
    ) -> None:
        program: P.ScheduledProgram = scheduled.program
        self.program = program
        self.blocks: list[tuple[str, np.ndarray, int]] = []  # (name, bytes with guards, size)
        ins = [self._block(f"argument {i}", x.nbytes, _bytes(x)) for i, x in enumerate(inputs)]
        outs = [
            ins[scheduled.aliases[i]] if i in scheduled.aliases else self._block(f"result {i}", n)
            for i, n in enumerate(out_bytes)
        ]
        consts = [
            self._block(f"constant {i}", c.nbytes, _bytes(c))
            for i, c in enumerate(scheduled.consts)
        ]
        self.arena = self._block("the arena", program.arena_bytes)
        own = np.zeros(
            max([s.offset + s.nbytes for s in program.slots if s.own], default=0), np.uint8
        )
        temps = [
            (own if s.own else self.arena)[s.offset : s.offset + s.nbytes]
            for s in program.slots
            if s.is_temp
        ]
        self.ins, self.outs, self.own = ins, outs, own
        self.slots = [*ins, *outs, *consts, *temps]
        self.addresses = [x.ctypes.data for x in (*ins, *outs, *consts, self.arena)]
        self.is_guard = np.ones(program.arena_bytes, bool)
        for slot in program.slots:
            if slot.is_temp and not slot.own:
                self.is_guard[slot.offset : slot.offset + slot.nbytes] = False
        self.arena[self.is_guard] = PATTERN

    def _block(self, name: str, nbytes: int, value: np.ndarray | None = None) -> np.ndarray:
        """Return aligned memory between guards."""
        raw = np.full(nbytes + 2 * GUARD + 64, PATTERN, np.uint8)
        start = -(raw.ctypes.data + GUARD) % 64 + GUARD
        whole = raw[start - GUARD : start + nbytes + GUARD]
        self.blocks.append((name, whole, nbytes))
        inner = raw[start : start + nbytes]
        inner[...] = UNWRITTEN if value is None else value
        return inner

    def state(self) -> list[np.ndarray]:
        """Return copies of all memory that steps may write."""
        return [np.array(x) for x in (*self.ins, *self.outs, self.arena, self.own)]

    def restore(self, state: Sequence[np.ndarray]) -> None:
        """Restore memory to the contents returned by `state`."""
        for x, value in zip((*self.ins, *self.outs, self.arena, self.own), state):
            x[...] = value

    def broken_guard(self) -> str | None:
        """Return a description of the first overwritten guard, or None, and repair the guards."""
        damage = None
        for name, whole, nbytes in self.blocks:
            for guard, side in ((whole[:GUARD], "before"), (whole[GUARD + nbytes :], "after")):
                bad = np.flatnonzero(guard != PATTERN)
                if bad.size:
                    distance = GUARD - int(bad[0]) if side == "before" else int(bad[0])
                    damage = (
                        damage
                        or f"{bad.size} bytes {side} {name} of {nbytes} bytes, the first {distance} bytes from it"
                    )
                    guard[...] = PATTERN
        bad = np.flatnonzero((self.arena != PATTERN) & self.is_guard)
        if bad.size:
            damage = damage or self._in_arena(int(bad[0]), bad.size)
            self.arena[self.is_guard] = PATTERN
        return damage

    def _in_arena(self, at: int, count: int) -> str:
        """Describe an overwritten guard in the arena relative to the nearest buffer."""
        candidates = [
            (max(s.offset - at, at - s.offset - s.nbytes, 0), i, s)
            for i, s in enumerate(self.program.slots)
            if s.is_temp and not s.own and s.nbytes
        ]
        if not candidates:
            return f"{count} bytes of the arena at {at}"
        distance, number, slot = min(candidates, key=lambda item: item[:2])
        side = "before" if at < slot.offset else "after"
        return f"{count} bytes {side} buffer s{number} of {slot.nbytes} bytes in the arena, the first {distance} bytes from it"


def _bytes(x: np.ndarray) -> np.ndarray:
    """Return the memory of an array as bytes."""
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def describe_step(step: P.Step) -> str:
    """Return a name of a step: the name of its kernel, or its kind.

    >>> describe_step(P.Copy(P.BufRef(1), P.BufRef(0), 8))
    'copy of 8 bytes'
    """
    match step:
        case P.Launch():
            return f"kernel {step.kernel.name}"
        case P.Gemm():
            tail = f" with epilogue {step.epilogue.name}" if step.epilogue is not None else ""
            return f"matmul {step.m}x{step.n}x{step.k} of {step.in_type}{tail}"
        case P.Sort():
            return f"sort of {step.rows} rows of {step.n} {step.type}"
        case P.Fft():
            return f"{step.kind} FFT of {step.rows} rows of {step.n}"
        case P.LibraryCall():
            return f"library routine {step.routine}"
        case P.HostCallStep():
            return f"host call {getattr(step.fn, '__name__', '')}"
        case P.Copy():
            return f"copy of {step.nbytes} bytes"
        case P.Loop() | P.WhileLoop() | P.Branch():
            inner = [describe_step(s) for body in bodies(step) for s in body]
            return f"{type(step).__name__.removesuffix('Step').lower()} over {', '.join(inner[:3])}{', ...' if len(inner) > 3 else ''}"
        case _:
            return type(step).__name__.removesuffix("Step").lower()


def bodies(step: P.Step) -> list[tuple[P.Step, ...]]:
    """Return the steps inside a step."""
    match step:
        case P.Loop():
            return [step.body]
        case P.WhileLoop():
            return [step.cond_body, step.body]
        case P.Branch():
            return list(step.branches)
        case _:
            return []
