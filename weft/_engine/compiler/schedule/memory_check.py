"""Checks of a scheduled program's memory: bounds, writes before reads, lifetimes, and overlap.

In:   a `Program`, and the aliases of outputs and donated inputs.
Out:  None, or a `MemoryPlanError` that names the step, the buffer, and the bytes.
How:  steps are simulated in order. Each byte of memory has at most one owner, the slot last written there. The bytes of a read
      must be owned by the slot that is read; otherwise they were never written, or another slot has overwritten them.
      The check runs on every compilation, since an error in the plan would cause wrong values or corrupt memory.
Laws: the bytes of an access are treated as one interval, so that gaps inside it are not detected. The body of a loop is
      simulated twice, and its reads are checked the second time.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence

from weft._engine.compiler.schedule.step_accesses import StepAccess, accesses_of
from weft._engine.ir import program as P
from weft._engine.util.record import record


class MemoryPlanError(AssertionError):
    """An error in the memory plan of a compiled program, that is, in the compiler."""


def check_memory(program: P.ScheduledProgram, aliases: Mapping[int, int] | None = None) -> None:
    """Check every access of a program's steps. `aliases` maps numbers of outputs to numbers of inputs whose memory they take.

    Raise MemoryPlanError for the first access that leaves its buffer, reads unwritten bytes, or overlaps another access.
    """
    memory = _ByteOwners(program, aliases or {})
    memory.follow(program.steps, {}, True)


@record
class _Location:
    """The bytes of one access in all iterations of the enclosing loops."""

    slot: int
    space: tuple[str, int]
    start: int
    end: int

    def overlaps(self, other: _Location) -> bool:
        return self.space == other.space and self.start < other.end and other.start < self.end


class _ByteOwners:
    """The owners of all bytes at one point of the simulation."""

    def __init__(self, program: P.ScheduledProgram, aliases: Mapping[int, int]):
        self.slots = program.slots
        ins = [i for i, slot in enumerate(program.slots) if slot.is_input]
        outs = [i for i, slot in enumerate(program.slots) if slot.is_output]
        self.host = {outs[out]: ins[source] for out, source in aliases.items()}
        self.owners: dict[tuple[str, int], _Owners] = {}
        donated = set(self.host.values())
        self.constant = {
            i
            for i, slot in enumerate(program.slots)
            if slot.is_constant or (slot.is_input and i not in donated)
        }
        for i, slot in enumerate(program.slots):
            if slot.is_input or slot.is_constant:
                self._owners_of((slot.kind, i)).give(0, slot.nbytes, i)

    def follow(self, steps: Sequence[P.Step], loops: dict[str, int], checks_reads: bool) -> None:
        """Simulate steps inside loops; `loops` maps loop variables to extents."""
        for number, step in enumerate(steps):
            match step:
                case P.Loop():
                    self._repeat(
                        [step.body],
                        {**loops, step.var: step.extent},
                        checks_reads and step.extent > 0,
                    )
                case P.WhileLoop():
                    self.follow(step.cond_body, loops, checks_reads)
                    condition = [P.Copy(step.cond, step.cond, 1)]
                    self._repeat([condition, step.body, step.cond_body], loops, checks_reads)
                case P.Branch():
                    self._branch(step, loops, checks_reads)
                case _:
                    self._step(step, f"step {number} ({_title(step)})", loops, checks_reads)

    def _repeat(
        self, bodies: Iterable[Sequence[P.Step]], loops: dict[str, int], checks_reads: bool
    ) -> None:
        for checks in (False, checks_reads):
            for body in bodies:
                self.follow(body, loops, checks)

    def _branch(self, step: P.Branch, loops: dict[str, int], checks_reads: bool) -> None:
        """Simulate each branch from the same state; afterwards, only owners on which all branches agree remain."""
        before = {space: owners.copy() for space, owners in self.owners.items()}
        ends = []
        for branch in step.branches:
            self.owners = {space: owners.copy() for space, owners in before.items()}
            self.follow(branch, loops, checks_reads)
            ends.append(self.owners)
        if ends:
            spaces = set.intersection(*[{*end} for end in ends])
            self.owners = {space: _common([end[space] for end in ends]) for space in spaces}

    def _step(self, step: P.Step, title: str, loops: dict[str, int], checks_reads: bool) -> None:
        located = [(access, self._locate(access, title, loops)) for access in accesses_of(step)]
        for access, location in located:
            if not access.writes and not access.partial and checks_reads:
                self._check_owner(location, title)
        self._check_overlap(step, located, title)
        for access, location in located:
            if access.writes:
                if location.slot in self.constant:
                    raise MemoryPlanError(
                        f"{title} writes {self._name(location.slot)}, which is read-only"
                    )
                self._owners_of(location.space).give(location.start, location.end, location.slot)

    def _locate(self, access: StepAccess, title: str, loops: Mapping[str, int]) -> _Location:
        """Return the bytes of an access; raise MemoryPlanError if they leave the buffer."""
        ref, slot = access.ref, self.slots[access.ref.slot]
        low, high = access.span()
        low, high = low + ref.offset, high + ref.offset
        for var, stride in ref.strides:
            if var not in loops:
                raise MemoryPlanError(f"{title} uses the variable {var} outside of its loop")
            reach = stride * max(loops[var] - 1, 0)
            low, high = low + min(0, reach), high + max(0, reach)
        if access.until_end:
            high = max(high, slot.nbytes)
        if low < 0 or high > slot.nbytes:
            verb = "writes" if access.writes else "reads"
            raise MemoryPlanError(
                f"{title} {verb} bytes {low} to {high} of {self._name(ref.slot)}, which has {slot.nbytes} bytes"
            )
        if slot.is_temp:
            return _Location(
                ref.slot, ("own" if slot.own else "arena", 0), low + slot.offset, high + slot.offset
            )
        host = self.host.get(ref.slot, ref.slot)
        return _Location(ref.slot, (self.slots[host].kind, host), low, high)

    def _check_owner(self, location: _Location, title: str) -> None:
        for start, end, owner in self._owners_of(location.space).between(
            location.start, location.end
        ):
            if owner == location.slot or (
                owner is not None and self.host.get(location.slot) == owner
            ):
                continue
            offset = self.slots[location.slot].offset
            state = (
                "nothing has written" if owner is None else f"{self._name(owner)} has overwritten"
            )
            raise MemoryPlanError(
                f"{title} reads {self._name(location.slot)}, but {state} its bytes {start - offset} to {end - offset}"
            )

    def _check_overlap(
        self, step: P.Step, located: Sequence[tuple[StepAccess, _Location]], title: str
    ) -> None:
        """Raise MemoryPlanError if buffers of one step overlap and one is written, unless the kernel declares an alias or the step
        works in place."""
        if isinstance(step, P.HostCallStep | P.LibraryCall | P.Fft | P.Start | P.Wait):
            return
        aliased = _aliased_refs(step)
        for n, (access, location) in enumerate(located):
            for other, there in located[:n]:
                if not (access.writes or other.writes) or not location.overlaps(there):
                    continue
                if (
                    access.ref == other.ref
                    and access.writes != other.writes
                    and access.nbytes == other.nbytes
                ):
                    continue
                if isinstance(step, P.JoinStep) and access.writes and other.writes:
                    continue
                if (
                    isinstance(step, P.Gemm | P.Launch)
                    and frozenset((access.ref, other.ref)) in aliased
                ):
                    continue
                if access.ref.strides and location.slot == there.slot:
                    continue  # addresses of different iterations may overlap, addresses of one iteration differ
                raise MemoryPlanError(
                    f"{title} accesses {self._name(location.slot)} and {self._name(there.slot)}, "
                    "whose memory overlaps, and writes one of them"
                )

    def _owners_of(self, space: tuple[str, int]) -> _Owners:
        return self.owners.setdefault(space, _Owners())

    def _name(self, slot: int) -> str:
        return f"s{slot} ({self.slots[slot].kind})"


def _aliased_refs(step: P.Step) -> set[frozenset[P.BufRef]]:
    """Return the pairs of addresses that a step's kernel declares as aliases."""
    if isinstance(step, P.Launch):
        bufs, args = step.kernel.bufs, step.args
    elif isinstance(step, P.Gemm) and step.epilogue is not None:
        bufs, args = step.epilogue.bufs[2:], step.epilogue_args
    else:
        return set()
    refs = {buf.name: ref for buf, ref in zip(bufs, args)}
    return {
        frozenset((ref, refs[buf.alias])) for buf, ref in zip(bufs, args) if buf.alias is not None
    }


def _title(step: P.Step) -> str:
    kernel = (
        step.kernel
        if isinstance(step, P.Launch)
        else step.epilogue
        if isinstance(step, P.Gemm)
        else None
    )
    return f"{type(step).__name__}" if kernel is None else f"{type(step).__name__} of {kernel.name}"


class _Owners:
    """The owners of the bytes of one memory: adjacent intervals in order of their starts, each with a slot or None."""

    def __init__(self) -> None:
        self.starts: list[int] = [0]
        self.slots: list[int | None] = [None]

    def copy(self) -> _Owners:
        copied = _Owners()
        copied.starts, copied.slots = [*self.starts], [*self.slots]
        return copied

    def _split_interval(self, at: int) -> int:
        """Split the interval that contains `at`; return the position of the interval that starts there."""
        n = bisect.bisect_right(self.starts, at)
        if self.starts[n - 1] == at:
            return n - 1
        self.starts.insert(n, at)
        self.slots.insert(n, self.slots[n - 1])
        return n

    def give(self, start: int, end: int, slot: int | None) -> None:
        first, last = self._split_interval(start), self._split_interval(end)
        self.starts[first:last], self.slots[first:last] = [start], [slot]

    def between(self, start: int, end: int) -> list[tuple[int, int, int | None]]:
        """Return the intervals (start, end, owner) that cover the bytes from `start` to `end`."""
        intervals = []
        for n in range(bisect.bisect_right(self.starts, start) - 1, len(self.starts)):
            if self.starts[n] >= end:
                break
            until = self.starts[n + 1] if n + 1 < len(self.starts) else end
            intervals.append((max(self.starts[n], start), min(until, end), self.slots[n]))
        return intervals


def _common(ends: Sequence[_Owners]) -> _Owners:
    """Return the owners on which all ends agree; other bytes have no owner."""
    common, points = _Owners(), sorted({at for end in ends for at in end.starts})
    for n, at in enumerate(points):
        owners = {end.slots[bisect.bisect_right(end.starts, at) - 1] for end in ends}
        until = points[n + 1] if n + 1 < len(points) else at + 1
        common.give(at, until, owners.pop() if len(owners) == 1 else None)
    return common
