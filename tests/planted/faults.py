"""Twenty named faults of the compiler, as substitutions of text.

In:   the sources of a tree.
Out:  `FAULTS`; each replaces a text that occurs exactly once in its file.
Laws: a faulty file is valid Python; `test_anchors` fails when the text of an anchor changes.
Next: `tree` applies them to a copy, `battery` runs the checks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlantedFault:
    """A fault: `old` becomes `new` in `path`."""

    name: str
    note: str
    path: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        """Return the file's text with the fault; raise ValueError unless the anchor occurs exactly
        once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"fault {self.name!r}: its anchor is {count} times in {self.path}")
        return text.replace(self.old, self.new)


FAULTS = (
    PlantedFault(
        "wrong permutation",
        "strides of a product's results are permuted by the inverse of its permutation",
        "weft/_engine/compiler/kernels/library_calls.py",
        "c_strides[order.index(d)] for d in range(len(order))",
        "c_strides[order[d]] for d in range(len(order))",
    ),
    PlantedFault(
        "bound off by one",
        "reductions over columns leave out the last row",
        "weft/_engine/compiler/loops/outer_reduction.py",
        "blocks, leftover = divmod(extent, side)",
        "blocks, leftover = divmod(max(extent - 1, 1), side)",
    ),
    PlantedFault(
        "missing rescale",
        "an online sum keeps its scale when the running maximum changes",
        "weft/_engine/compiler/loops/outer_reduction.py",
        '"mul", b.load(self.bufs[online_sum.sum.name], j, online_sum.sum.value.type), scale\n',
        '"max", *[b.load(self.bufs[online_sum.sum.name], j, online_sum.sum.value.type)] * 2\n',
    ),
    PlantedFault(
        "aliased buffers",
        "memory of an operand is given to the result of the step that reads it",
        "weft/_engine/compiler/schedule/arena.py",
        "while expiring and expiring[0][0] < buffer.first:",
        "while expiring and expiring[0][0] <= buffer.first:",
    ),
    PlantedFault(
        "swapped strides",
        "rows and columns of a product's second operand are exchanged",
        "weft/_engine/compiler/kernels/library_calls.py",
        "(m[-1][1], k[1]), (k[2], n_[-1][1])",
        "(m[-1][1], k[1]), (n_[-1][1], k[2])",
    ),
    PlantedFault(
        "dropped epilogue",
        "a product stores its sums instead of the values of its epilogue",
        "weft/_engine/compiler/kernels/kernel_epilogue.py",
        "self.value(root, tuple(index), None, True), type_name(root.aval.dtype)\n",
        "self.b.cast(self.sums, type_name(root.aval.dtype)), type_name(root.aval.dtype)\n",
    ),
    PlantedFault(
        "wrong neutral element",
        "every reduction in a kernel begins with zero",
        "weft/_engine/compiler/lowering/lower.py",
        "self._accumulate(op, b.const(spec.identity(atom.aval.dtype), acc_type), value, axes)",
        "self._accumulate(op, b.const(np.zeros((), atom.aval.dtype).item(), acc_type), value, axes)",
    ),
    PlantedFault(
        "stale cache key",
        "the cache of views takes layout ops with other parameters for equal",
        "weft/_engine/compiler/fusion/classify.py",
        "        eqn.primitive,\n        params,\n        operand.aval.shape,\n",
        "        eqn.primitive,\n        operand.aval.shape,\n",
    ),
    PlantedFault(
        "missing barrier between steps",
        "the thread pool returns when the caller's own tasks are done",
        "weft/_engine/codegen/runtime/pool.ll",
        "%fin = icmp uge i64 %d, %n",
        "%fin = icmp uge i64 %d, 0",
    ),
    PlantedFault(
        "wrong partial-sum axis",
        "results of a dim split over several axes count as partial over the first only",
        "weft/_engine/partition/partitioner.py",
        "if makes_partial_sums(eqn, rule, f, axes) for a in mine\n",
        "if makes_partial_sums(eqn, rule, f, axes) for a in mine[:1]\n",
    ),
    PlantedFault(
        "wrong reshard",
        "an all_to_all is taken to put its axes before the axes of the target dim",
        "weft/_engine/partition/reshard.py",
        "with_dim(t, (*place.dims[t], *moved))",
        "with_dim(t, (*moved, *place.dims[t]))",
    ),
    PlantedFault(
        "wrong reduction dim",
        "reductions of square operands in a kernel run over the other dim",
        "weft/_engine/compiler/lowering/lower.py",
        "for d in range(atom.aval.ndim))\n        type_ = type_name(atom.aval.dtype)",
        "for d in range(atom.aval.ndim))\n"
        "        where = where[::-1] if len({*atom.aval.shape}) == 1 else where\n"
        "        type_ = type_name(atom.aval.dtype)",
    ),
    PlantedFault(
        "dropped mask",
        "the last vector of a loop of a variable extent is stored whole",
        "weft/_engine/codegen/kernel/kernel_emitter.py",
        "self._emit_vector_blocks(stmt, clamped, extent, 1, masked=True)",
        "self._emit_vector_blocks(stmt, clamped, extent, 1, masked=False)",
    ),
    PlantedFault(
        "wrong cast rounding",
        "casts to bfloat16 cut the bits",
        "weft/_engine/codegen/vector/half.py",
        'lanes.binary("add", lanes.i32, odd, _i(lanes, 0x7FFF))',
        'lanes.binary("add", lanes.i32, odd, _i(lanes, -1))',
    ),
    PlantedFault(
        "liveness too short",
        "a buffer from outside of a loop dies at its first reader in the body",
        "weft/_engine/compiler/schedule/liveness.py",
        "            buffer.last = max(buffer.last, self.clock)\n"
        "            if outer_region is not None",
        "            if outer_region is not None",
    ),
    PlantedFault(
        "donation of a live buffer",
        "a result is written into a donated input that is read later",
        "weft/_engine/compiler/schedule/buffer_aliasing.py",
        "if source.last < out.first:",
        "if source.last <= out.first + 2:",
    ),
    PlantedFault(
        "wrong gather clamp",
        "clipped windows may begin at the last element",
        "weft/_engine/ops/windows.py",
        "start = b.imax(b.imin(start, n - size), 0)",
        "start = b.imax(b.imin(start, n - 1), 0)",
    ),
    PlantedFault(
        "wrong scan carry",
        "carries that change places are copied one after another",
        "weft/_engine/compiler/schedule/loop_carries.py",
        "        if new.buffer in buffers:\n            spare",
        "        if False:\n            spare",
    ),
    PlantedFault(
        "wrong collective group",
        "groups of a collective hold the positions in their order",
        "weft/_engine/ops/collective_rules.py",
        "order = [i for members in groups for i in members]\n    count",
        "order = sorted(i for members in groups for i in members)\n    count",
    ),
    PlantedFault(
        "wrong padding offset",
        "operands padded on both sides begin after the padding of the far side",
        "weft/_engine/ops/slicing.py",
        "        at = b.isub(i, lo)\n        conditions = [",
        "        at = b.isub(i, hi if lo > 0 and hi > 0 else lo)\n        conditions = [",
    ),
)
