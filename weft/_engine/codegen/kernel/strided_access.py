"""Loads of every second, third, ... element by full vectors and shuffles.

In:   a buffer, an affine index with a step of at least two, the number of a vector in the
      iteration, and the kernel emitter.
Out:  the register, with elements in their memory type.
Laws: no memory before the first or after the last element is read. Strided windows x[2 * i + t] for
      t = 0, 1, 2, ... share loads of read-only buffers: elements that an earlier t has selected are
      shifted by a lane, not selected again.
"""

from __future__ import annotations

from weft._engine.codegen.ir.scalar_types import MEMORY, vector
from weft._engine.codegen.ir.values import Affine, constant
from weft._engine.codegen.kernel.emission import Emission
from weft._engine.ir.loops import ITEMSIZE


def load(e: Emission, name: str, type_: str, index: Affine, part: int) -> str:
    """Return vector `part` of the elements at `index`."""
    (variable, at), stride, width = e.split_constant(index.base), index.stride, e.lanes.w
    ends = part + 1 == e.parts or any(e.masks[part : part + 2])
    seen = (
        e.strided.setdefault(
            (e.b.scopes[-1], name, variable and variable.parts[0], stride, width), []
        )
        if name in e.pure_buffers
        else [at]
    )
    if at not in seen:
        seen.append(at)
    skip = 0
    for distance in [at - before for before in seen]:
        if 0 < distance < stride:
            skip = distance
        if 0 < distance < stride * width and distance % stride == 0 and not ends:
            earlier = Affine(e.sum(index.base, constant(-distance)), stride)
            x, y = [load(e, name, type_, earlier, i) for i in (part, part + 1)]
            return e.b.shuffle(
                vector(MEMORY[type_], width),
                x,
                y,
                range(distance // stride, distance // stride + width),
            )
    return _load_strided(
        e, name, type_, Affine(e.sum(index.base, constant(-skip)), stride), part, skip, ends
    )


def _load_strided(
    e: Emission, name: str, type_: str, index: Affine, part: int, skip: int, ends: bool
) -> str:
    """Select elements `skip`, `skip + stride`, ... from `index` on; with `ends` the last vector
    ends at the last element or is masked."""
    width, stride, size, memory = (
        e.lanes.w,
        index.stride,
        ITEMSIZE[type_],
        vector(MEMORY[type_], e.lanes.w),
    )
    pointer, tag = e.vector_address(name, type_, index, part * width), e.alias_tag(name)
    starts = [i * width for i in range(stride)]
    masked = e.masks[part] is not None
    if ends and not masked:
        starts[-1] = (stride - 1) * (width - 1) + skip
    picked = ""
    for i, start in enumerate(starts):
        at = (
            pointer
            if start == 0
            else e.b.pure(f"getelementptr i8, ptr {pointer}, i64 {start * size}", pointer)
        )
        mask = (
            _mask_first_elements(e, stride, skip + 1 - stride - start - part * width * stride)
            if masked
            else None
        )
        if mask is None:
            raw = e.read(name, f"load {memory}, ptr {at}, align {min(size, 8)}{tag}", at)
        else:
            raw = e.masked_load(name, memory, at, mask, min(size, 8)) if mask else "zeroinitializer"
        if not picked:
            picked = raw
            continue
        order = []
        for lane in range(width):
            place = lane * stride + skip
            register, old = min(place // width, stride - 1), lane if i > 1 else place
            order.append(width + place - start if register == i else old if register < i else 0)
        picked = e.b.shuffle(memory, picked, raw, order)
    return picked


def _mask_first_elements(e: Emission, stride: int, more: int) -> str | None:
    """Return a mask of the first `e.remaining * stride + more` lanes; None if that is all lanes, empty
    if it is none."""
    width = e.lanes.w
    if e.remaining.const is not None:
        count = e.remaining.const * stride + more
        return None if count >= width else e.lanes.opaque_mask(count) if count > 0 else ""
    count = e.operate(
        "add", [e.operate("mul", [e.remaining, constant(stride)], "i64"), constant(more)], "i64"
    ).parts[0]
    return e.lanes_below(e.lanes.splat(e.scalar.convert("trunc", "i64", count, "i32"), "i32"))
