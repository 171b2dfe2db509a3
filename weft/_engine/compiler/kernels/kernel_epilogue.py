"""Epilogues of matmuls: elementwise code on the result, as a kernel that runs on tiles of sums while they are in the cache.

In:   a `KernelGroup` whose `dot` is a matmul (see `fuse`), and that matmul's `Contraction`.
Out:  a Loops `LoopsKernel` in the form of `ir.program.Gemm.epilogue`, its buffers, and the outputs that may overwrite inputs.

The group is lowered at a symbolic row, column and batch element of the matmul. All its values have the same memory layout, so
the flat position in the result determines every index.
"""

from __future__ import annotations

from weft._engine.compiler.fusion.classify import flat_index, row_major
from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import KernelGroup
from weft._engine.compiler.kernels.library_calls import Contraction, sum_type
from weft._engine.compiler.loops.loop_nest import BuiltKernel
from weft._engine.compiler.lowering.let_placement import Emitter
from weft._engine.compiler.lowering.lower import GroupLowering, reachable
from weft._engine.compiler.lowering.substitution import Substitution
from weft._engine.ir.build import LoopsBuilder, type_name
from weft._engine.ir.jaxpr import Var
from weft._engine.ir.loops import Buf, Expr, Load, LoopKind, LoopsKernel, StoreElement
from weft._engine.ir.program import PLACE


class EpilogueLowering(GroupLowering):
    """The lowering of one group to the epilogue of its matmul."""

    def __init__(
        self, graph: Fusion, group: KernelGroup, result: Var, dot: Contraction, accumulate: str
    ):
        super().__init__(graph, group)
        self.dot, self.result = dot, result
        b = self.b
        self.row, self.col, self.element = (
            b.index("row", dot.m),
            b.index("col", dot.n),
            b.index("element"),
        )
        self.sums = b.ref("sums", sum_type(accumulate))
        self.vars = self._position(group.shape)

    def _position(self, shape: tuple[int, ...]) -> list[Expr]:
        """Return the index of each dim of `shape`, computed from the flat position in the result."""
        b, dot = self.b, self.dot
        flat = b.iadd(b.imul(self.row, dot.c_strides[0]), b.imul(self.col, dot.c_strides[1]))
        batch_index = self.element
        for place, (extent, _, _, stride) in reversed(list(enumerate(dot.batch))):
            flat = b.iadd(
                flat, b.imul(batch_index if place == 0 else b.irem(batch_index, extent), stride)
            )
            batch_index = b.idiv(batch_index, extent) if place else batch_index
        return [
            b.irem(b.idiv(flat, stride), n) if n > 1 else b.const(0, "i64")
            for n, stride in zip(shape, row_major(shape))
        ]

    def _value(self, atom: Var, index: tuple, guard: Expr | None, own: bool) -> Expr:
        if atom is self.result:
            return (
                self.b.cast(self.sums, type_name(atom.aval.dtype))
                if self.sums.type == "i32"
                else self.sums
            )
        return super()._value(atom, index, guard, own)

    def kernel(self, name: str) -> BuiltKernel:
        """Return the kernel: a loop over the rows of a tile around a loop over its columns, vectorized unless there is 1 column."""
        roots, at = self.group.roots, []
        values = []
        for root in roots:
            index = (
                self.vars
                if root.aval.shape == self.group.shape
                else self._position(root.aval.shape)
            )
            values.append(
                self.b.storage_form(
                    self.value(root, tuple(index), None, True), type_name(root.aval.dtype)
                )
            )
            at.append(flat_index(self.b, index, row_major(root.aval.shape)))
        b = LoopsBuilder()
        word = {name: b.load("place", i, "i64") for i, name in enumerate(PLACE)}
        r, c = b.index("r", None, 1), b.index("c", None, 2)
        mapping = {
            id(self.row): b.iadd(word["row"], r),
            id(self.col): b.iadd(word["col"], c),
            id(self.element): word["batch"],
            id(self.sums): b.load("sums", b.iadd(b.imul(r, word["pitch"]), c), self.sums.type),
        }
        substitute, emit = Substitution(self.b, b, mapping), Emitter(b)
        emit.open(1)
        emit.open(2)
        done = emit.compute([substitute(x) for x in (*at, *values)])
        for i, (index, value) in enumerate(zip(done, emit.before_stores(done[len(roots) :]))):
            emit.append(StoreElement(f"y{i}", index, value))
        # the minimum tells codegen that there are few columns
        emit.close(
            "c",
            b.imin(word["cols"], self.dot.n),
            LoopKind.VECTOR if self.dot.n > 1 else LoopKind.SERIAL,
        )
        emit.close("r", word["rows"], LoopKind.SERIAL)
        leaves = list(self.names)
        bufs = [
            Buf("sums", self.sums.type, self.dot.m * self.dot.n),
            Buf("place", "i64", len(PLACE)),
        ]
        bufs += [Buf(self.names[v], type_name(v.aval.dtype), v.aval.size) for v in leaves]
        bufs += [
            Buf(f"y{i}", type_name(v.aval.dtype), v.aval.size, "out") for i, v in enumerate(roots)
        ]
        kernel = LoopsKernel(tuple(bufs), tuple(emit.scopes[0].body), name=name)
        return BuiltKernel(kernel, leaves, list(roots), self._in_place(roots, at, values, leaves))

    def _in_place(
        self, roots: list[Var], at: list[Expr], values: list[Expr], leaves: list[Var]
    ) -> list[tuple[Var, Var]]:
        """Return pairs of an output and an input that it may overwrite: the input is only read at the element being written."""
        reads: dict[str, set[int]] = {}
        for x in reachable(values):
            if type(x) is Load:
                reads.setdefault(x.buf, set()).add(id(x.index) if x.guard is None else 0)
        alike = lambda a, b: (
            a.aval.size == b.aval.size and a.aval.dtype.itemsize == b.aval.dtype.itemsize
        )
        return [
            (out, leaf)
            for out, index in zip(roots, at)
            for leaf in leaves
            if alike(out, leaf) and reads.get(self.names[leaf]) == {id(index)}
        ]
