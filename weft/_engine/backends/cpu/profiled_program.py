"""Programs that record their steps, for profiles.

In:   a loaded program, and its schedule.
Out:  a `CpuProgram` with the same results, which passes the records of each call on.
Laws: the loaded program and its code are unchanged. Constants are shared with it, the words of exchanges included, so that
      all processes plan the same exchanges in the same order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft._engine.backends.cpu.loaded_program import CpuProgram
from weft._engine.codegen.program.profiled_entry import StepRecords, compile_profiled

if TYPE_CHECKING:
    from weft._engine.compiler.schedule.schedule import Scheduled


class ProfiledCpuProgram(CpuProgram):
    """A program that records its steps, in place of `original`."""

    def __init__(
        self, original: CpuProgram, scheduled: Scheduled, receive: Callable[[StepRecords], None]
    ):
        super().__init__(compile_profiled(scheduled.program, receive), original.plan)
        self.original = original
        self.consts, self.has_words = original.consts, original.has_words
        pointers = len(self.plan.argument_bytes) + len(self.plan.result_bytes) + len(self.consts)
        self.slots_type = ctypes.c_void_p * (pointers + 2)  # the arena and the records

    def _fill_words(self) -> None:
        if not self.original.has_words:
            self.original._fill_words()
        self.has_words = True
