"""From a program on dense arrays to a Program: kernels, matmuls and control flow over planned buffers.

In:   a simplified jaxpr without collectives, and which inputs are donated.
Out:  `Scheduled`: the Program, its constants, counts, and which outputs take the memory of donated inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from weft.compiler.classify import row_major, treatment
from weft.compiler.expand import expand
from weft.compiler.fuse import Graph
from weft.compiler.groups import Group
from weft.compiler.lower import Lowering
from weft.compiler.memory import Buffer, Ref, Region, place
from weft.compiler.nest import Built, build
from weft.ir import program as P
from weft.ir.build import type_name
from weft.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from weft.ir.loops import Kernel
from weft.util.record import record, replace

MOST_LOWERED = 4096
_lowered: dict[tuple, tuple] = {}      # lowered kernels by what they compute


@record(frozen=False)
class Scheduled:
    """A program ready for code generation. `aliases`: output number -> donated input number whose memory it takes."""
    program: P.Program
    consts: list[np.ndarray]
    gemm_count: int
    aliases: dict[int, int]
    peak_bytes: int

    @property
    def kernels(self) -> list[Kernel]:
        """Kernels in the order in which they run (one entry per launch); tails of matmuls are not among them."""
        return [s.kernel for s in walk(self.program.steps) if isinstance(s, P.Launch)]

    @property
    def kernel_count(self) -> int:
        """How many kernels there are, sorts among them."""
        return sum([isinstance(s, P.Launch | P.Sort) for s in walk(self.program.steps)])

    @property
    def has_loops(self) -> bool:
        return any(isinstance(s, P.Loop | P.WhileLoop) for s in walk(self.program.steps))

    @property
    def tails(self) -> list[Kernel]:
        """Tails of matmuls in the order in which they run."""
        return [s.tail for s in walk(self.program.steps) if isinstance(s, P.Gemm) and s.tail is not None]

    def text(self) -> str:
        """What dumps show: slots, steps and kernels."""
        from weft.ir.program_text import program_text
        return program_text(self.program)


def walk(steps) -> list:
    """All steps, those of loops and branches included."""
    out = []
    for step in steps:
        out.append(step)
        for name in ("body", "cond_body"):
            out += walk(getattr(step, name, ()))
        for branch in getattr(step, "branches", ()):
            out += walk(branch)
    return out


def schedule(jaxpr: Jaxpr, donated: Sequence[int] = ()) -> Scheduled:
    """Fuse, lower and plan `jaxpr`."""
    return Scheduler(expand(jaxpr), donated).run()


@record(frozen=False, eq=False)
class Pending:
    """A step whose addresses are not fixed yet: `make(address)` gives it. Launches may gain in-place pairs."""
    make: Callable
    time: int
    in_place: dict[Buffer, list[tuple[Buffer, str, str]]] | None = None
    aliases: list[tuple[str, str]] | None = None
    copied: tuple[Buffer, Buffer] | None = None      # a step that only copies one whole buffer to another
    dropped: bool = False


def fixed(steps: Sequence[Pending], address: Callable) -> tuple:
    """The steps with their addresses."""
    return tuple(p.make(address) for p in steps if not p.dropped)


class Scheduler:
    """Writes the steps of a program and of the bodies inside it, on one clock."""

    def __init__(self, jaxpr: Jaxpr, donated: Sequence[int]):
        self.jaxpr, self.donated = jaxpr, tuple(donated)
        self.clock = 0
        self.region: Region | None = None
        self.buffers: list[Buffer] = []
        self.consts: list[np.ndarray] = []
        self.const_refs: dict[object, Ref] = {}
        self.steps: list[Pending] = []
        self.loops = 0
        self.launches: list[Pending] = []                # the steps that run kernels
        self.copies: list[Pending] = []
        self.gemms = 0
        self.last_read: dict[Buffer, int] = {}

    def run(self) -> Scheduled:
        jaxpr = self.jaxpr
        ins = [self.new(v.aval.nbytes, "in", i) for i, v in enumerate(jaxpr.invars)]
        outs = [self.new(v.aval.nbytes, "out", i) for i, v in enumerate(jaxpr.outvars)]
        self.body(jaxpr, [Ref(b) for b in ins], [Ref(b) for b in outs])
        aliases = self._donate(ins, outs)
        self._share()
        arena = place(self.buffers)
        order = {"in": 0, "out": 1, "const": 2, "temp": 3}
        buffers = [b for b in self.buffers if b.forward is None and (b.kind != "temp" or b.last >= 0)]
        buffers.sort(key=lambda b: (order[b.kind], b.number))
        numbers = {b: i for i, b in enumerate(buffers)}

        def address(ref: Ref) -> P.BufRef:
            ref = ref.final()
            return P.BufRef(numbers[ref.buffer], ref.offset, ref.strides)

        slots = tuple(P.Slot(b.kind, b.nbytes, b.offset) for b in buffers)
        steps = fixed(self.steps, address)
        program = P.Program(slots, steps, arena, jaxpr.name or "program")
        peak = arena + sum(b.nbytes for b in buffers if b.kind != "temp") - sum(ins[i].nbytes for i in aliases.values())
        return Scheduled(program, self.consts, self.gemms, aliases, peak)

    # ---- buffers and time

    def new(self, nbytes: int, kind: str = "temp", number: int = -1) -> Buffer:
        made = Buffer(nbytes, kind, number, self.region)
        self.buffers.append(made)
        return made

    def temp(self, aval) -> Ref:
        return Ref(self.new(aval.nbytes))

    def const(self, value, dtype) -> Ref:
        """A constant of the program; equal small ones are one."""
        array = np.ascontiguousarray(np.asarray(value, dtype))
        key = (array.dtype, array.shape, array.tobytes()) if array.nbytes <= 64 else id(value)
        found = self.const_refs.get(key)
        if found is None:
            saved, self.region = self.region, None
            found = self.const_refs[key] = Ref(self.new(array.nbytes, "const", len(self.consts)))
            self.region = saved
            self.consts.append(array)
        return found

    def touch(self, ref: Ref) -> None:
        buffer = ref.final().buffer
        buffer.first = min(buffer.first, self.clock)
        buffer.last = max(buffer.last, self.clock)
        region = self.region
        if region is not None and buffer.region is not region:
            region.touched.add(buffer)

    def step(self, make: Callable, reads: Sequence[Ref], writes: Sequence[Ref]) -> Pending:
        """Add a step that reads and writes these addresses."""
        for ref in reads:
            self.touch(ref)
        for ref in reads:
            self.last_read[ref.final().buffer] = self.clock
        for ref in writes:
            self.touch(ref)
        pending = Pending(make, self.clock)
        self.clock += 1
        self.steps.append(pending)
        return pending

    def copy(self, target: Ref, source: Ref, nbytes: int) -> None:
        if nbytes and target.final() != source.final():
            step = self.step(lambda at: P.Copy(at(target), at(source), nbytes), [source], [target])
            ends = target.final(), source.final()
            if self.region is None and not any(r.offset or r.strides for r in ends):
                step.copied = ends[0].buffer, ends[1].buffer
                self.copies.append(step)

    def launch(self, kernel: Kernel, reads: Sequence[Ref], writes: Sequence[Ref], operands: Sequence[Ref] = (),
               step: Callable = lambda kernel, args, operands: P.Launch(kernel, args)) -> Pending:
        """Add a step that runs `kernel` on `reads` and `writes`; as part of a matmul, it reads `operands` too."""
        refs = (*reads, *writes)

        def make(at) -> P.Step:
            final = kernel
            if pending.aliases:
                names = dict(pending.aliases)
                final = replace(kernel, bufs=tuple(replace(b, alias=names[b.name]) if b.name in names else b
                                                   for b in kernel.bufs))
            return step(final, tuple(at(r) for r in refs), tuple(at(r) for r in operands))

        pending = self.step(make, (*reads, *operands), writes)
        self.launches.append(pending)
        return pending

    def inside(self, run: Callable) -> list[Pending]:
        """The steps that `run` adds, as the body of a loop or branch."""
        outer_steps, outer_region = self.steps, self.region
        self.steps, self.region = [], Region(outer_region)
        run()
        steps, region = self.steps, self.region
        self.steps, self.region = outer_steps, outer_region
        for buffer in region.touched:
            buffer = Ref(buffer).final().buffer
            buffer.last = max(buffer.last, self.clock)
            if outer_region is not None and buffer.region is not outer_region:
                outer_region.touched.add(buffer)
        self.clock += 1
        return steps

    # ---- one body

    def body(self, jaxpr: Jaxpr, ins: Sequence[Ref], outs: Sequence[Ref | None],
             owned: Sequence[bool] = ()) -> list[Ref]:
        """Add the steps of `jaxpr`; results go to `outs` where given; `owned` inputs may be overwritten when dead."""
        return Body(self, jaxpr, ins, outs, owned).run()

    # ---- memory that is shared after all

    def _donate(self, ins: list[Buffer], outs: list[Buffer]) -> dict[int, int]:
        """Outputs that may be written into donated inputs: nobody reads those later, or the kernel works in place."""
        writers = {b: p for p in self.launches for b in (p.in_place or {})}
        free = [i for i in self.donated if ins[i].nbytes]
        aliases: dict[int, int] = {}
        for number, out in enumerate(outs):
            for i in free:
                source = ins[i]
                if source.nbytes != out.nbytes or out.last < 0:
                    continue
                pair = None
                copy = next((p for p in self.copies if p.time == out.first and p.copied == (out, source)), None)
                if copy is not None and source.last == copy.time:
                    copy.dropped = True
                    aliases[number] = i
                    free.remove(i)
                    break
                if source.last == out.first:
                    pairs = writers[out].in_place[out] if out in writers else ()
                    pair = next((p for p in pairs if p[0] is source), None)
                if source.last < out.first or pair is not None:
                    if pair is not None:
                        self._alias(writers[out], pair)
                    aliases[number] = i
                    free.remove(i)
                    break
        return aliases

    def _share(self) -> None:
        """Temporary results that take over an input of their kernel which dies there."""
        taken: set[Buffer] = set()
        for pending in self.launches:
            for out, pairs in (pending.in_place or {}).items():
                if out.kind != "temp" or out.forward is not None or out.first != pending.time or out.nbytes < 1 << 16:
                    continue
                for pair in pairs:
                    source = pair[0]
                    if source.kind == "temp" and source.forward is None and source.last == pending.time \
                            and source.region is out.region and source not in taken and source.nbytes == out.nbytes:
                        out.takes_over = source
                        taken.add(source)
                        self._alias(pending, pair)
                        break

    @staticmethod
    def _alias(pending: Pending, pair: tuple) -> None:
        pending.aliases = [*(pending.aliases or []), (pair[1], pair[2])]


def carried_from(eqn: Eqn) -> int:
    """Position among a loop's operands of the first carried value."""
    params = eqn.params
    return params["num_consts"] if eqn.primitive.name == "scan" else params["cond_nconsts"] + params["body_nconsts"]


def carried_count(eqn: Eqn) -> int:
    """How many values a loop carries."""
    return eqn.params["num_carry"] if eqn.primitive.name == "scan" else len(eqn.outvars)


class Body:
    """The steps of one jaxpr: the program, or the inside of a loop or branch."""

    def __init__(self, plan: Scheduler, jaxpr: Jaxpr, ins, outs, owned):
        self.plan, self.jaxpr = plan, jaxpr
        self.env: dict[Var, Ref] = dict(zip(jaxpr.invars, ins))
        for var, value in zip(jaxpr.constvars, jaxpr.consts):
            self.env[var] = plan.const(value, var.aval.dtype)
        self.outs = outs
        self.owned = {v for v, yes in zip(jaxpr.invars, owned) if yes}
        self.graph = Graph(jaxpr)
        self.items = self.graph.items()
        self.targets: dict[Var, Ref] = {}
        self.last_read: dict[Var, int] = {}

    def run(self) -> list[Ref]:
        graph = self.graph
        self._find_targets()
        stacked = self._stack_carries()
        for i, item in enumerate(self.items):
            reads = graph.read_by(item) if isinstance(item, Group) else [a for a in item.invars if type(a) is not Literal]
            for var in reads:
                self.last_read[graph.memory_of(var)] = i
        for atom in self.jaxpr.outvars:
            if type(atom) is not Literal:
                self.last_read[graph.memory_of(atom)] = len(self.items)
        self._pass_targets_on()
        for i, item in enumerate(self.items):
            self.now = i
            if isinstance(item, Group):
                self._group(item)
            else:
                self._hard(item)
        results = []
        for n, (atom, out) in enumerate(zip(self.jaxpr.outvars, self.outs)):
            ref = self.ref(atom)
            if out is not None:
                if n not in stacked:
                    self.plan.copy(out, ref, atom.aval.nbytes)
                ref = out
            results.append(ref)
        return results

    def _stack_carries(self) -> set[int]:
        """Results that are carried values as they came: copied first, so that the next ones may take the carries' memory."""
        found = set()
        for n, (atom, out) in enumerate(zip(self.jaxpr.outvars, self.outs)):
            if out is not None and type(atom) is not Literal and atom in self.owned:
                self.plan.copy(out, self.ref(atom), atom.aval.nbytes)
                found.add(n)
        return found

    def _find_targets(self) -> None:
        """Values that are written straight into the memory of an output."""
        for atom, out in zip(self.jaxpr.outvars, self.outs):
            if out is None or type(atom) is Literal:
                continue
            base = self.graph.memory_of(atom)
            if base not in self.env and base not in self.targets and base.aval.nbytes == atom.aval.nbytes:
                self.targets[base] = out

    def _pass_targets_on(self) -> None:
        """What an update or a loop starts from is made in the memory of its result, if it serves nothing else."""
        for i in reversed(range(len(self.items))):
            item = self.items[i]
            if isinstance(item, Group):
                continue
            how = treatment(item)
            if how in ("scatter", "update", "library"):
                self._pass_on(i, item.invars[0], item.outvars[0])
            elif how == "region" and item.primitive.name in ("scan", "while"):
                first, courses = carried_from(item), self._stacked_courses(item)
                for n, (atom, var) in enumerate(zip(item.invars[first:], item.outvars[:carried_count(item)])):
                    if n not in courses:
                        self._pass_on(i, atom, var)

    def _pass_on(self, position: int, atom: Atom, var: Var) -> None:
        item = self.items[position]
        if type(atom) is Literal:
            return
        base = self.graph.memory_of(atom)
        if not self._reads_once(item.invars, base):
            return
        if base not in self.env and base not in self.targets and self.last_read[base] == position \
                and base.aval.nbytes == atom.aval.nbytes == var.aval.nbytes:
            if var not in self.targets:
                self.targets[var] = self.plan.temp(var.aval)
            self.targets[base] = self.targets[var]

    def ref(self, atom: Atom) -> Ref:
        """Where a value lies, dense."""
        if type(atom) is Literal:
            return self.plan.const(atom.val, atom.aval.dtype)
        found = self.env.get(atom)
        if found is None:
            base, view = self.graph.resolve(atom)
            found = self.env[atom] = self.ref(base).moved(view.offset * atom.aval.dtype.itemsize)
        return found

    def result(self, var: Var) -> Ref:
        """Memory for a result of the current step."""
        made = self.env[var] = self.targets.get(var) or self.plan.temp(var.aval)
        return made

    # ---- kernels

    def _group(self, group: Group) -> None:
        group.roots = [v for v in group.roots if v in self.graph.stored]
        if all(v.aval.size == 0 for v in group.roots):
            for var in group.roots:
                self.result(var)
            return
        if group.dot is not None:
            self._contract(group.dot, group)
            return
        kernel, ins, in_place = self._kernel(group, self.graph.signature(group), lambda: self._plain(group))
        reads = [self.ref(v) for v in ins]
        writes = [self.result(v) for v in group.roots]
        self._offer(self.plan.launch(kernel, reads, writes), in_place, reads, writes)

    def _plain(self, group: Group) -> Built:
        return build(Lowering(self.graph, group).run(), self._name(group))

    def _offer(self, pending: Pending, in_place: Sequence[tuple], reads: list[Ref], writes: list[Ref],
               operands: Sequence[Ref] = ()) -> None:
        """Note which results of a kernel may take the memory of what it reads (but for operands of its matmul)."""
        pairs: dict[Buffer, list] = {}
        taken = [r.buffer for r in operands]
        for out, source, name in in_place:
            target, given = writes[out], reads[source]
            if not (target.offset or given.offset or target.strides or given.strides) and given.buffer not in taken:
                pairs.setdefault(target.buffer, []).append((given.buffer, f"y{out}", name))
        pending.in_place = pairs

    def _kernel(self, group: Group, signature: tuple, lower: Callable) -> tuple[Kernel, list[Var], tuple]:
        """The kernel, what it reads, and (result, operand, its name) that may share memory; equal groups lower once."""
        key, leaves = signature
        found = _lowered.get(key) if key is not None else None
        if found is None:
            built = lower()
            given = [b.name for b in built.kernel.bufs if b.mode == "in"]
            names = dict(zip(reversed(built.ins), reversed(given)))
            in_place = tuple((built.outs.index(o), built.ins.index(i), names[i]) for o, i in built.in_place)
            if key is None or set(built.ins) - set(leaves):
                return built.kernel, built.ins, in_place
            found = built.kernel, tuple(leaves.index(v) for v in built.ins), in_place
            if len(_lowered) >= MOST_LOWERED:
                _lowered.clear()
            _lowered[key] = found
        kernel, order, in_place = found
        return kernel, [leaves[i] for i in order], in_place

    def _name(self, group: Group) -> str:
        made = [v for v in group.roots if v in self.graph.producer]      # a matmul's own result is not
        name = self.graph.producer[made[-1]].primitive.name
        return f"fused_{name}" if len(self.graph.producer) > 1 else name

    # ---- other equations

    def _hard(self, eqn: Eqn) -> None:
        how = treatment(eqn)
        if how == "region":
            getattr(self, "_" + eqn.primitive.name, self._unknown)(eqn)
        elif all(v.aval.size == 0 for v in eqn.outvars) and not eqn.effects:
            for var in eqn.outvars:
                self.result(var)
        elif how == "scan":
            self._running(eqn)
        else:
            getattr(self, "_" + how)(eqn)

    def _unknown(self, eqn: Eqn) -> None:
        raise NotImplementedError(f"compile: control flow primitive {eqn.primitive.name!r} has no schedule.")

    def _running(self, eqn: Eqn) -> None:
        """Running combinations: long ones by stretches."""
        from weft.compiler import running  # here and below: what most programs do without
        run, plan = running.of(eqn), self.plan
        xs, ys = [self.ref(a) for a in eqn.invars], [self.result(v) for v in eqn.outvars]
        if run.turns == 1:
            plan.launch(run.kernel(), xs, ys)
            return
        var, kept = self._loop_variable(), [Ref(plan.new(nbytes)) for nbytes in run.kept]
        numbers = np.arange(-1, run.turns - 1, dtype=np.int64)
        number = replace(plan.const(numbers, np.int64), strides=((var, numbers.itemsize),))
        for ref in kept:
            plan.touch(ref)
        steps = plan.inside(lambda: plan.launch(run.kernel(), [*xs, number], [*ys, *kept]))
        plan.step(lambda at: P.Loop(var, run.turns, fixed(steps, at), False), [], [])

    def _host(self, eqn: Eqn) -> None:
        from weft.compiler import special
        ins = [(self.ref(a), a.aval.shape, a.aval.dtype.name) for a in eqn.invars]
        outs = [(self.result(v), v.aval.shape, v.aval.dtype.name) for v in eqn.outvars]
        function = special.host_function(eqn)
        fix = lambda at, items: tuple((at(r), shape, name) for r, shape, name in items)
        self.plan.step(lambda at: P.HostCall(function, fix(at, ins), fix(at, outs)), [r for r, _, _ in ins],
                       [r for r, _, _ in outs])

    def _sort(self, eqn: Eqn) -> None:
        """Rows along the last dim, by `codegen.sort`."""
        aval, kind = eqn.invars[0].aval, eqn.primitive.rules["lower"].kind
        n = aval.shape[-1]
        ins, outs = [self.ref(a) for a in eqn.invars], [self.result(v) for v in eqn.outvars]
        options = {"k": eqn.params.get("k", 0), "descending": eqn.params.get("descending", False)}

        def step(at) -> P.Sort:
            previous = at(ins[1]) if len(ins) == 2 else None
            places = at(outs[1]) if len(outs) == 2 else None
            return P.Sort(kind, type_name(aval.dtype), aval.size // n, n, at(ins[0]), at(outs[0]), previous, places, **options)
        self.plan.step(step, ins, outs)

    def _library(self, eqn: Eqn) -> None:
        """A routine on every matrix of a batch; it overwrites the first operand."""
        ins = [self.ref(a) for a in eqn.invars[1:]]
        outs = [self._overwritten(eqn), *(self.result(v) for v in eqn.outvars[1:])]
        lead = eqn.invars[0].aval.ndim - 2
        count = math.prod(eqn.invars[0].aval.shape[:lead])
        arrays = [(f"{kind}{i}", ref, atom.aval.size // max(count, 1), atom.aval.dtype.name)
                  for kind, atoms, refs, first in (("y", eqn.outvars, outs, 0), ("x", eqn.invars[1:], ins, 1))
                  for i, (atom, ref) in enumerate(zip(atoms, refs), first)]
        routine, arguments = eqn.params["routine"], eqn.params["arguments"]
        self.plan.step(lambda at: P.LibraryCall(routine, count, arguments, tuple((name, at(ref), *rest) for name, ref, *rest in arrays)),
                       [outs[0], *ins], outs)

    def _overwritten(self, eqn: Eqn) -> Ref:
        """The result's memory, holding the first operand: that operand's own memory if nobody needs it any more."""
        operand, out = eqn.invars[0], eqn.outvars[0]
        source = self.ref(operand)
        if type(operand) is not Literal and out not in self.targets:
            base = self.graph.memory_of(operand)
            mine = base in self.owned or (base not in self.jaxpr.invars and base not in self.jaxpr.constvars)
            dead = self.last_read[base] == self.now and self._reads_once(eqn.invars, base)
            if mine and dead and not source.strides and base.aval.nbytes == out.aval.nbytes:
                self.env[out] = source
                return source
        target = self.result(out)
        self.plan.copy(target, source, out.aval.nbytes)      # nothing if the operand was made there
        return target

    def _reads_once(self, atoms: Sequence[Atom], base: Var) -> bool:
        """Whether only one of `atoms` lies in the memory of `base`: views of it would see it change."""
        return sum(type(a) is not Literal and self.graph.memory_of(a) is base for a in atoms) == 1

    def _scatter(self, eqn: Eqn) -> None:
        from weft.compiler import scatters
        if scatters.has_rows(eqn, self._may_overwrite(eqn)):
            self._scatter_row_by_row(eqn)
            return
        target = self._overwritten(eqn)
        if eqn.invars[2].aval.size:
            updates, strides = self._operand(eqn.invars[2])
            apart = scatters.tables(eqn)
            if apart == 1 and scatters.has_owners(eqn):
                kernel, reads = scatters.owned(eqn, strides)
            else:
                kernel, reads = scatters.in_order(eqn, strides, apart)
            sources = [updates if i == 2 else self.ref(eqn.invars[i]) for i in reads]
            if apart == 1:
                self.plan.launch(kernel, sources, [target])
                return
            tables = Ref(self.plan.new(apart * eqn.invars[0].aval.nbytes))
            self.plan.launch(kernel, sources, [tables])
            self.plan.launch(scatters.combined_tables(eqn), [tables], [target])

    def _scatter_row_by_row(self, eqn: Eqn) -> None:
        """Updates brought into the order of rows, then all rows written once; in place if the operand is where the result goes."""
        from weft.compiler import scatters
        updates, strides = self._operand(eqn.invars[2])
        operand, target = self.ref(eqn.invars[0]), self.result(eqn.outvars[0])
        kernel, reads = scatters.sorted_by_row(eqn)
        order = [Ref(self.plan.new(4 * b.size)) for b in kernel.bufs[-2:]]
        self.plan.launch(kernel, [self.ref(eqn.invars[i]) for i in reads], order)
        kernel, reads = scatters.row_by_row(eqn, strides)
        sources = [updates if i == 2 else operand for i in reads] + order
        pending = self.plan.launch(kernel, sources, [target])
        same = "y0", f"x{reads.index(0)}"
        if operand.final() == target.final():
            pending.aliases = [same]
        else:
            self._offer(pending, [(0, reads.index(0), same[1])], sources, [target])

    def _may_overwrite(self, eqn: Eqn) -> bool:
        """Whether the result takes the place of the first operand, which nobody needs any more."""
        operand, plan = eqn.invars[0], self.plan
        if type(operand) is Literal:
            return False
        base = self.graph.memory_of(operand)
        given = base in self.jaxpr.invars and base not in self.owned and base not in [plan.jaxpr.invars[i] for i in plan.donated]
        dead = self.last_read[base] == self.now and self._reads_once(eqn.invars, base)
        return dead and not given and base not in self.jaxpr.constvars

    def _update(self, eqn: Eqn) -> None:
        target = self._overwritten(eqn)
        if eqn.invars[1].aval.size:
            from weft.compiler import special
            kernel, reads = special.update_kernel(eqn)
            self.plan.launch(kernel, [self.ref(eqn.invars[i]) for i in reads], [target])

    def _contract(self, eqn: Eqn, group: Group | None = None) -> None:
        """A matmul, and the group that is its tail."""
        from weft.compiler import special
        (a, a_strides), (b, b_strides) = self._operand(eqn.invars[0]), self._operand(eqn.invars[1])
        dot = special.Contraction(eqn, a_strides, b_strides, dense_rows=group is not None)
        if dot.exchanged:
            a, b = b, a
        in_type, out_type = (type_name(v.aval.dtype) for v in (eqn.invars[0], eqn.outvars[0]))
        acc = special.accumulator(in_type, out_type)
        self.plan.gemms += 1

        def gemm(a, b, c, out_type: str, tail=None, args=()) -> P.Gemm:
            return P.Gemm(dot.m, dot.n, dot.k, a, b, c, dot.a_strides, dot.b_strides, dot.c_strides, in_type, acc, out_type,
                          dot.batch, dot.outer_k, dot.a_rows, dot.b_cols, tail, args)

        if group is None:
            c = self.result(eqn.outvars[0])
            self.plan.step(lambda at: gemm(at(a), at(b), at(c), out_type), [a, b], [c])
            return
        key, leaves = self.graph.signature(group)
        key = key and (key, leaves.index(eqn.outvars[0]), dot.shape(), acc)
        from weft.compiler.tail import Tail
        lower = lambda: Tail(self.graph, group, dot, acc).kernel(self._name(group))
        kernel, ins, in_place = self._kernel(group, (key, leaves), lower)
        reads, writes = [self.ref(v) for v in ins], [self.result(v) for v in group.roots]
        step = lambda tail, args, operands: gemm(*operands, None, special.sum_type(acc), tail, args)
        self._offer(self.plan.launch(kernel, reads, writes, [a, b], step), in_place, reads, writes, [a, b])

    def _operand(self, atom: Atom) -> tuple[Ref, tuple[int, ...]]:
        """Address and strides of an operand that need not be dense: transposes, broadcasts and slices are only strides."""
        if type(atom) is not Literal and atom not in self.env:
            base, view = self.graph.resolve(atom)
            if view is not None:
                return self.ref(base).moved(view.offset * atom.aval.dtype.itemsize), view.strides
        return self.ref(atom), row_major(atom.aval.shape)

    # ---- control flow

    def _carries(self, atoms: Sequence[Atom], outvars: Sequence[Var]) -> list[Ref]:
        """Memory that a loop carries values in, filled with the first ones."""
        carries = []
        for atom, var in zip(atoms, outvars):
            carry = self.result(var)
            self.plan.copy(carry, self.ref(atom), atom.aval.nbytes)
            self.plan.touch(carry)
            carries.append(carry)
        return carries

    def _carry_over(self, carries: list[Ref], fresh: list[Ref], avals: Sequence) -> None:
        """End of a loop body: the new values become the carried ones."""
        plan = self.plan
        ends = [r.final() for r in fresh]
        homes = {c.final().buffer for c in carries}
        late = []
        for carry, new, aval in zip(carries, ends, avals):
            home = carry.final()
            if new == home or not aval.nbytes:
                continue
            if self._adopt(carry, new, ends, homes):
                continue
            if new.buffer in homes:
                spare = plan.temp(aval)
                plan.copy(spare, new, aval.nbytes)
                new = spare
            late.append((carry, new, aval.nbytes))
        for carry, new, nbytes in late:
            plan.copy(carry, new, nbytes)

    def _adopt(self, carry: Ref, new: Ref, ends: list[Ref], homes: set[Buffer]) -> bool:
        """Let the step that makes a new carried value write it into the carry, if the old one is dead by then."""
        plan, home, buffer = self.plan, carry.final(), new.buffer
        if buffer.kind != "temp" or buffer.region is not plan.region or buffer in homes:
            return False
        if new.offset or new.strides or home.strides or home.offset or buffer.nbytes != home.buffer.nbytes:
            return False
        if sum(e.buffer is buffer for e in ends) != 1 or any(e.buffer is home.buffer for e in ends):
            return False
        writer = next((p for p in reversed(plan.steps) if p.time == buffer.first), None)
        read = plan.last_read.get(home.buffer, -1)
        if writer is None or read > buffer.first:
            return False
        if read == buffer.first:
            pair = next((p for p in (writer.in_place or {}).get(buffer, ()) if p[0] is home.buffer), None)
            if pair is None:
                return False
            plan._alias(writer, pair)
        buffer.forward = home
        return True

    def _stacked_courses(self, eqn: Eqn) -> dict[int, list[tuple[Var, bool]]]:
        """Carried values of a scan whose beginnings of turns are stacked: their stacks, and whether each is of the ends of turns."""
        if eqn.primitive.name != "scan" or not eqn.params["length"]:
            return {}
        inner, nc, nk = eqn.params["jaxpr"], eqn.params["num_consts"], eqn.params["num_carry"]
        found = {}
        for n, (begin, end) in enumerate(zip(inner.invars[nc:nc + nk], inner.outvars[:nk])):
            stacks = [(var, atom is not begin) for atom, var in zip(inner.outvars[nk:], eqn.outvars[nk:])
                      if var not in self.targets and (atom is begin or atom is end)]
            if begin.aval.nbytes and not all(ends for _, ends in stacks):
                found[n] = stacks
        return found

    def _course(self, eqn: Eqn, n: int, stacks: list[tuple[Var, bool]]) -> tuple[Ref, Ref]:
        """Memory for a carried value at all times, and where it lies at the begin and at the end of the first turn.

        The end of a turn is the begin of the next: a stack of ends is that of begins, one place on."""
        first, length, back = eqn.invars[carried_from(eqn) + n], eqn.params["length"], bool(eqn.params.get("reverse", False))
        nbytes, last = first.aval.nbytes, eqn.outvars[n]
        course = Ref(self.plan.new((length + 1) * nbytes))
        begins, ends = course.moved(back * nbytes), course.moved((not back) * nbytes)
        self.plan.copy(course.moved(back * length * nbytes), self.ref(first), nbytes)
        for var, of_ends in stacks:
            self.env[var] = ends if of_ends else begins
        if last not in self.targets:
            self.env[last] = course.moved((not back) * length * nbytes)
        return begins, ends

    def _scan(self, eqn: Eqn) -> None:
        params, plan = eqn.params, self.plan
        inner, length = params["jaxpr"], params["length"]
        nc, nk = params["num_consts"], params["num_carry"]
        consts = [self.ref(a) for a in eqn.invars[:nc]]
        xs = [self.ref(a) for a in eqn.invars[nc + nk:]]
        courses = {n: self._course(eqn, n, stacks) for n, stacks in self._stacked_courses(eqn).items()}
        moving = [n for n in range(nk) if n not in courses]
        carries = self._carries([eqn.invars[nc + n] for n in moving], [eqn.outvars[n] for n in moving])
        ys = [self.env.get(v) or self.result(v) for v in eqn.outvars[nk:]]
        if length == 0:
            return
        var = self._loop_variable()
        along = lambda ref, aval: Ref(ref.buffer, ref.offset, (*ref.strides, (var, aval.nbytes)))

        def run() -> None:
            for ref in (*carries, *ys, *(begins for begins, _ in courses.values())):
                plan.touch(ref)
            given: list[Ref] = [*consts, *([None] * nk), *(along(r, v.aval) for r, v in zip(xs, inner.invars[nc + nk:]))]
            outs = [None] * nk + [along(r, a.aval) for r, a in zip(ys, inner.outvars[nk:])]
            for n, carry in zip(moving, carries):
                given[nc + n] = carry
            for n, (begins, ends) in courses.items():
                aval = inner.outvars[n].aval
                given[nc + n], outs[n] = along(begins, aval), along(ends, aval)
            owned = [False] * nc + [n not in courses for n in range(nk)] + [False] * len(xs)
            fresh = plan.body(inner, given, outs, owned)
            self._carry_over(carries, [fresh[n] for n in moving], [eqn.outvars[n].aval for n in moving])

        steps = plan.inside(run)
        reverse = bool(params.get("reverse", False))
        plan.step(lambda at: P.Loop(var, length, fixed(steps, at), reverse), [], [])
        for n, (_, ends) in courses.items():
            out = eqn.outvars[n]
            if out in self.targets:
                nbytes = out.aval.nbytes
                plan.copy(self.result(out), ends.moved(0 if reverse else (length - 1) * nbytes), nbytes)

    def _while(self, eqn: Eqn) -> None:
        params, plan = eqn.params, self.plan
        n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
        cond_consts = [self.ref(a) for a in eqn.invars[:n_cond]]
        body_consts = [self.ref(a) for a in eqn.invars[n_cond:n_cond + n_body]]
        carries = self._carries(eqn.invars[n_cond + n_body:], eqn.outvars)
        flag = plan.temp(params["cond_jaxpr"].outvars[0].aval)
        plan.touch(flag)
        test: list[Pending] = []

        def whole() -> None:
            for ref in (*carries, flag):
                plan.touch(ref)
            test.extend(plan.inside(lambda: plan.body(params["cond_jaxpr"], [*cond_consts, *carries], [flag])))
            plan.steps.extend(plan.inside(run))

        def run() -> None:
            owned = [False] * n_body + [True] * len(carries)
            fresh = plan.body(params["body_jaxpr"], [*body_consts, *carries], [None] * len(carries), owned)
            self._carry_over(carries, fresh, [v.aval for v in eqn.outvars])

        steps = plan.inside(whole)
        plan.step(lambda at: P.WhileLoop(fixed(test, at), at(flag), fixed(steps, at)), [flag], [])

    def _cond(self, eqn: Eqn) -> None:
        plan, branches = self.plan, eqn.params["branches"]
        index, *operands = eqn.invars
        selector = self.ref(index)
        ins = [self.ref(a) for a in operands]
        outs = [self.result(v) for v in eqn.outvars]
        made: list[list[Pending]] = []

        def whole() -> None:
            for ref in (selector, *outs):
                plan.touch(ref)
            for branch in branches:
                made.append(plan.inside(lambda branch=branch: plan.body(branch, ins, outs)))

        plan.inside(whole)
        plan.step(lambda at: P.Branch(at(selector), tuple(fixed(steps, at) for steps in made)), [selector], outs)

    def _loop_variable(self) -> str:
        self.plan.loops += 1
        return f"l{self.plan.loops}"
