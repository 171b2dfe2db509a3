"""Masked loads and stores, atomic updates, copies between references, and semaphores.

In:   references, or parts of them (`ref.at[index]`), in a kernel.
Out:  values, and writes.
Laws: masked elements are neither read nor written, so they may be out of bounds; a load returns
      `other` for them, or NaN (the least integer). Iterations that share memory run in sequence:
      plain updates are atomic. A copy is complete when it is started. A semaphore is a number, and
      a wait only subtracts: it does not block.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft._engine.control.ref import Ref, TransformedRef
from weft._engine.control.ref_index import Slice
from weft._engine.core.trace import typeof
from weft._engine.pallas.inside import blank_value
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import api_boundary


def _parts(ref: Any, idx: Any = None) -> tuple[Ref, tuple]:
    """Return a reference and the indices that apply to it, one after another."""
    more = () if idx is None else (idx,)
    if isinstance(ref, TransformedRef):
        return ref.ref, (*ref.transforms, *more)
    if not isinstance(ref, Ref):
        raise TypeError(
            f"load, store: expected a reference, or ref.at[index], got {ref!r} of type {type(ref).__name__}."
        )
    return ref, more


class _ReferenceElements:
    """Elements of a reference, which may be out of bounds.

    The record has the whole value, the position along each dim (arrays that broadcast to `shape`, the shape of the result), and a function
    that writes the value back.
    """

    __slots__ = ("positions", "shape", "value", "write")

    def __init__(self, ref: Any, idx: Any):
        base, indices = _parts(ref, idx)
        last = indices[-1] if indices else Ellipsis
        part = TransformedRef(base, indices[:-1]) if len(indices) > 1 else base
        self.value, self.write = part[...], lambda new: part.set(new)
        self.positions, self.shape = _positions(typeof(self.value).shape, last)

    def mask_inside(self, mask: Any) -> Any:
        """Return the mask, False for elements out of bounds."""
        valid = wnp.broadcast_to(wnp.asarray(mask, bool), self.shape)
        for at, n in zip(self.positions, typeof(self.value).shape):
            valid = valid & (at >= 0) & (at < n)
        return valid

    def clip(self) -> tuple:
        """Return the positions, clamped to the bounds."""
        return tuple(
            [
                wnp.clip(at, 0, max(n - 1, 0))
                for at, n in zip(self.positions, typeof(self.value).shape)
            ]
        )


def _positions(shape: tuple[int, ...], index: Any) -> tuple[list, tuple[int, ...]]:
    """Return the selected positions along each dim, and the shape of the selection.

    As in NumPy, the dims of index arrays come first if the arrays are apart."""
    parts = _whole_index(index, len(shape))
    arrays = [d for d, i in enumerate(parts) if not isinstance(i, (slice, Slice))]
    common = np.broadcast_shapes(*[np.shape(parts[d]) for d in arrays])
    adjacent = bool(arrays) and arrays[-1] - arrays[0] == len(arrays) - 1
    before = arrays[0] if adjacent else 0  # dims of slices ahead of the arrays' dims
    runs = {d: _run(parts[d], n) for d, n in enumerate(shape) if d not in arrays}
    sizes = [typeof(run).shape[0] for run in runs.values()]
    full = (*sizes[:before], *common, *sizes[before:])
    positions, num_arrays = [], 0
    for d, n in enumerate(shape):
        if d in arrays:
            at: Any = wnp.asarray(parts[d])
            if wnp.issubdtype(at.dtype, wnp.signedinteger):
                at = wnp.where(at < 0, at + n, at)
            lead = before + len(common) - at.ndim
            dims = (1,) * lead + at.shape + (1,) * (len(sizes) - before)
        else:
            at = runs[d]
            dim = num_arrays if num_arrays < before else num_arrays + len(common)
            dims = tuple(at.shape[0] if k == dim else 1 for k in range(len(full)))
            num_arrays += 1
        positions.append(at.reshape(dims))
    return positions, full


def _whole_index(index: Any, ndim: int) -> list:
    """Return one entry per dim: whole slices stand for an ellipsis and for missing dims."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(i is None for i in parts):
        raise NotImplementedError(
            "load, store: an index with None cannot be combined with a mask. Reshape the value instead."
        )
    spread = [n for n, i in enumerate(parts) if i is Ellipsis]
    if spread:
        parts[spread[0] : spread[0] + 1] = [slice(None)] * (ndim - len(parts) + 1)
    return parts + [slice(None)] * (ndim - len(parts))


def _run(part: slice | Slice, n: int) -> Any:
    """Return the positions of a slice."""
    if isinstance(part, Slice):
        return wnp.asarray(part.start, np.int32) + wnp.arange(part.size, dtype=np.int32) * np.int32(
            part.stride
        )
    start, stop, step = part.indices(n)
    return wnp.arange(start, stop, step, dtype=np.int32)


@api_boundary
def load(
    ref: Any,
    idx: Any = None,
    *,
    mask: Any = None,
    other: Any = None,
    cache_modifier: str | None = None,
    eviction_policy: str | None = None,
    volatile: bool = False,
) -> Any:
    """Return the value of a reference, of a part of it, or at an index.

    The result is `other` where `mask` is False. The last three parameters have no effect.

    >>> from weft.experimental import pallas as pl
    >>> ref = weft.new_ref(wnp.arange(4))
    >>> pl.load(ref, pl.ds(2, 4), mask=wnp.arange(4) < 2, other=9).tolist()
    [2, 3, 9, 9]
    """
    if mask is None:
        if other is not None:
            raise ValueError("load: `other` is the value of masked elements, so it needs a `mask`.")
        base, indices = _parts(ref, idx)
        return TransformedRef(base, indices)[...] if indices else base[...]
    at = _ReferenceElements(ref, idx)
    if at.positions:
        elements = (
            at.value[at.clip()]
            if at.value.size
            else blank_value(typeof(at.value).update(shape=at.shape))
        )
    else:
        elements = at.value
    elements = wnp.broadcast_to(elements, at.shape)
    fill = (
        blank_value(typeof(elements))
        if other is None
        else wnp.broadcast_to(wnp.asarray(other, elements.dtype), at.shape)
    )
    return wnp.where(at.mask_inside(mask), elements, fill)


def _update(
    ref: Any, idx: Any, val: Any, mask: Any, combine: Callable[[Any, Any], Any] | None
) -> Any:
    """Write `combine(old, val)`, by default `val`, where the mask is True.

    Return the previous elements.
    """
    if mask is None:
        base, indices = _parts(ref, idx)
        part = TransformedRef(base, indices) if indices else base
        old = part[...]
        part.set(val if combine is None else wnp.asarray(combine(old, val), old.dtype))
        return old
    at = _ReferenceElements(ref, idx)
    old = load(ref, idx, mask=mask)
    new = wnp.broadcast_to(
        wnp.asarray(val if combine is None else combine(old, val), old.dtype), at.shape
    )
    if not at.positions:
        at.write(wnp.where(at.mask_inside(mask), new, old))
        return old
    inside = at.mask_inside(mask)
    whole = [wnp.broadcast_to(p, at.shape) for p in at.positions]
    whole[0] = wnp.where(inside, whole[0], at.value.shape[0])  # out of bounds: dropped
    at.write(at.value.at[tuple(whole)].set(new, mode="drop"))
    return old


@api_boundary
def store(ref: Any, *args: Any, mask: Any = None, eviction_policy: str | None = None) -> None:
    """Write a value: `store(ref, value)` or `store(ref, index, value)`.

    If `mask` is given, write only where it is True.

    >>> from weft.experimental import pallas as pl
    >>> ref = weft.new_ref(wnp.zeros(3))
    >>> pl.store(ref, pl.ds(1, 4), wnp.ones(4), mask=wnp.arange(4) < 1)
    >>> ref
    Ref([0., 1., 0.], dtype=float32)
    """
    idx, val = _value_of("store", args)
    _update(ref, idx, val, mask, None)


@api_boundary
def swap(ref: Any, *args: Any, mask: Any = None, eviction_policy: str | None = None) -> Any:
    """Write like `store`, and return the previous elements.

    >>> from weft.experimental import pallas as pl
    >>> pl.swap(weft.new_ref(wnp.arange(3)), pl.ds(1, 2), wnp.zeros(2, int)).tolist()
    [1, 2]
    """
    idx, val = _value_of("swap", args)
    return _update(ref, idx, val, mask, None)


def _value_of(api: str, args: Sequence) -> Any:
    if len(args) not in (1, 2):
        raise TypeError(
            f"{api}: takes a reference, perhaps an index, and a value; got {quantity(1 + len(args), 'argument')}."
        )
    return (None, args[0]) if len(args) == 1 else args


def atomic(name: str, what: str, combine: Callable[[Any, Any], Any] | None) -> Callable:
    """Return the atomic update function for `combine(old, new)`."""

    def update(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
        base, indices = _parts(x_ref_or_view, None if isinstance(idx, tuple) and not idx else idx)
        part = TransformedRef(base, indices) if indices else base
        return _update(part, None, val, mask, combine)

    update.__name__ = update.__qualname__ = name
    update.__doc__ = f"""Write {what} to a part of a reference, where `mask` is True; gives what was there.

    >>> ref = weft.new_ref(wnp.array([6, 3]))
    >>> weft.experimental.pallas.triton.{name}(ref, 0, 5).item()
    6
    """
    return api_boundary(update)


@api_boundary
def atomic_cas(ref: Any, cmp: Any, val: Any) -> Any:
    """Write `val` to a scalar reference if it holds `cmp`; return the previous value.

    >>> ref = weft.new_ref(0)
    >>> weft.experimental.pallas.triton.atomic_cas(ref, 0, 7).item(), ref
    (0, Ref(7, dtype=int32))
    """
    old = ref[...]
    if typeof(old).ndim:
        raise ValueError(
            f"atomic_cas: the reference must have no dims, got {typeof(old).str_short()}."
        )
    ref.set(wnp.where(old == cmp, wnp.asarray(val, old.dtype), old))
    return old


# ---- copies


class AsyncCopy:
    """A copy between references of a kernel. `start` completes it, so `wait` has no effect."""

    def __init__(self, src: Any, dst: Any, sem: Any = None, add: bool = False):
        self.src, self.dst, self.sem, self.add = src, dst, sem, add

    def start(self, priority: int = 0, *, add: bool = False) -> None:
        """Copy the elements."""
        if self.add or add:
            self.dst.addupdate(self.src[...])
        else:
            self.dst.set(self.src[...])

    def wait(self) -> None:
        """Do nothing: the copy is complete."""

    wait_send = wait_recv = wait


def make_async_copy(src_ref: Any, dst_ref: Any, sem: Any) -> AsyncCopy:
    """Return a copy from one reference to another, to run with `start()` and `wait()`.

    >>> from weft.experimental.pallas import tpu as pltpu
    >>> target = weft.new_ref(wnp.zeros(2))
    >>> pltpu.make_async_copy(weft.new_ref(wnp.ones(2)), target, None).start()
    >>> target
    Ref([1., 1.], dtype=float32)
    """
    return AsyncCopy(src_ref, dst_ref, sem)


def async_copy(
    src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0, add: bool = False
) -> AsyncCopy:
    """Start a copy from one reference to another.

    >>> from weft.experimental.pallas import tpu as pltpu
    >>> pltpu.async_copy(weft.new_ref(1.0), weft.new_ref(0.0), None).wait()
    """
    copy = AsyncCopy(src_ref, dst_ref, sem, add)
    copy.start(priority)
    return copy


def sync_copy(src_ref: Any, dst_ref: Any, *, add: bool = False) -> None:
    """Copy from one reference to another.

    >>> from weft.experimental.pallas import tpu as pltpu
    >>> pltpu.sync_copy(weft.new_ref(1.0), weft.new_ref(0.0))
    """
    AsyncCopy(src_ref, dst_ref, None, add).start()


# ---- semaphores


class DeviceIdType(enum.Enum):
    """The form of a semaphore's device id."""

    __module__ = "weft.experimental.pallas"

    MESH = "mesh"
    LOGICAL = "logical"


def semaphore_signal(
    sem_or_view: Any,
    inc: Any = 1,
    *,
    device_id: Any = None,
    device_id_type: DeviceIdType = DeviceIdType.MESH,
    core_index: Any = None,
) -> None:
    """Add to a semaphore. Raises NotImplementedError for a semaphore of another device.

    >>> from weft.experimental import pallas as pl
    >>> sem = weft.new_ref(0)
    >>> pl.semaphore_signal(sem, 2)
    >>> pl.semaphore_read(sem).item()
    2
    """
    if device_id is not None:
        raise NotImplementedError(
            "semaphore_signal: device_id is not supported, because kernels do not communicate between devices. "
            "Call the kernel in shard_map, and use collectives outside of it."
        )
    sem_or_view.addupdate(wnp.asarray(inc, sem_or_view.dtype))


def semaphore_wait(sem_or_view: Any, value: Any = 1, *, decrement: bool = True) -> None:
    """Subtract from a semaphore, without blocking.

    Iterations run in sequence, so no other iteration could signal meanwhile.

    >>> weft.experimental.pallas.semaphore_wait(weft.new_ref(1))
    """
    if decrement:
        sem_or_view.addupdate(-wnp.asarray(value, sem_or_view.dtype))


def semaphore_read(sem_or_view: Any) -> Any:
    """Return the value of a semaphore.

    >>> weft.experimental.pallas.semaphore_read(weft.new_ref(1)).item()
    1
    """
    return sem_or_view[...]
