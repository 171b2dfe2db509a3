"""`Array`: a global array, sharded over devices.

In:   an array spec (`backends.array_spec`: type, sharding, committed or not), and a buffer of the backend of the devices.
Out:  an immutable array, its values on the host, its shards.
Laws: only the backend reads a buffer, which holds the array that `ArraySpec.stored` describes. The sharding defines which devices hold which
      shard. Of an array over several processes each process has the shards of its own devices; it can read the value if they cover the
      whole array. Array methods and operators are attached by `weft._engine.numpy.methods`.
Next: `backends.base` defines the operations of a backend on arrays, `runtime.executable` runs programs on them.
"""

from __future__ import annotations

import functools
import math
import operator
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from weft._engine.backends.array_spec import ArraySpec, inverse, transpose, undo_transpose
from weft._engine.backends.base import Device, DeviceMemory
from weft._engine.backends.formats import Format, format_of
from weft._engine.core.array_methods import ArrayMethods
from weft._engine.hooks import PENDING_BUFFER_TYPES
from weft._engine.ir.mesh import Mesh, placement_mesh, use_default_device
from weft._engine.ir.shardings import NamedSharding, Sharding, SingleDeviceSharding, block_index
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray, check_number
from weft._engine.runtime.device import default_device
from weft._engine.runtime.transfer_guards import NO_TRANSFER, AllowTransfers, has_guard, to_device
from weft._engine.util import dtypes
from weft._engine.util.errors import ShardingError, describe
from weft._engine.util.events import reports_as, spell_names
from weft._engine.util.messages.notebook import NotebookDisplay
from weft._engine.util.source import clean_method_error, user_frame

_default_shardings: dict = {}


def default_sharding() -> SingleDeviceSharding:
    """Return the sharding of uncommitted arrays: the default device."""
    device = default_device()
    sharding = _default_shardings.get(device)
    if sharding is None:
        sharding = _default_shardings[device] = SingleDeviceSharding(device)
    return sharding


def placement_of_new() -> tuple[Sharding, bool]:
    """Return the default placement of new arrays, and whether it is committed.

    It is the default device (False), or all devices of the context mesh (True).
    """
    mesh = placement_mesh()
    return (default_sharding(), False) if mesh is None else (make_replicated_sharding(mesh), True)


@functools.lru_cache(maxsize=256)
def make_replicated_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding that replicates an array over a mesh."""
    return NamedSharding(mesh, PartitionSpec())


class ArrayMeta(type):
    """A metaclass that makes tracers instances of `Array`, and their classes subclasses, as JAX programs expect."""

    def __instancecheck__(cls, instance) -> bool:
        return type(instance) is cls or getattr(type(instance), "_is_tracer", False)

    def __subclasscheck__(cls, subclass) -> bool:
        return subclass is cls or getattr(subclass, "_is_tracer", False)


@reports_as("jax")
class Array(NotebookDisplay, ArrayMethods, metaclass=ArrayMeta):
    """An immutable n-dimensional array, possibly sharded over many devices.

    Methods that NumPy arrays also have are the functions of that name in `weft.numpy`. Shapes are global.

    >>> x = wnp.arange(6.).reshape(2, 3)
    >>> x.shape, x.dtype.name, x.ndim, x.size, x.itemsize, x.weak_type, x.aval
    ((2, 3), 'float32', 2, 6, 4, False, ShapedArray(float32[2,3]))
    >>> x.sharding.num_devices, x.device in x.devices(), x.addressable_shards[0].index, x.addressable_data(0).shape
    (1, True, (slice(None, None, None), slice(None, None, None)), (2, 3))
    >>> x.astype("int32").T.tolist(), x.at[0, 1].set(9.).item(1), list(x.flat)[-1], x.block_until_ready() is x
    ([[0, 3], [1, 4], [2, 5]], 9.0, Array(5., dtype=float32), True)
    >>> x.transpose(1, 0).shape, x.conj().real.shape
    ((3, 2), (2, 3))
    >>> y = x.copy()
    >>> y.delete(); y.is_deleted()
    True
    """

    __slots__ = ("_spec", "_buffer", "_view", "_parts", "__weakref__")
    __array_priority__ = 100

    _spec: ArraySpec
    _buffer: Any  # None once the array was deleted or donated
    _view: np.ndarray  # the cached NumPy view
    _parts: list["Shard"]  # the cached shards

    def __init__(self, spec: ArraySpec, buffer: Any):
        self._spec = spec
        self._buffer = buffer

    # ---- type and placement
    @property
    def aval(self) -> ShapedArray:
        """The type: shape, dtype, weak type."""
        return self._spec.aval

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return self._spec.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self._spec.aval.dtype

    @property
    def __numpy_dtype__(self) -> np.dtype:
        """The dtype for `np.dtype(x)`, in NumPy 2.4 and later."""
        warnings.warn(
            "Implicit conversion of an array to a dtype is deprecated. Use x.dtype.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.dtype

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return self._spec.aval.ndim

    @property
    def size(self) -> int:
        """Number of elements of the global array."""
        return self._spec.aval.size

    @property
    def nbytes(self) -> int:
        """Bytes of the global array."""
        return self._spec.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._spec.aval.dtype.itemsize

    @property
    def weak_type(self) -> bool:
        """Whether the dtype is weak: other dtypes have precedence in promotion."""
        return self._spec.aval.weak_type

    @property
    def sharding(self) -> Sharding:
        """The sharding over devices."""
        return self._spec.sharding

    @property
    def format(self) -> Format:
        """The dim order in memory, and the sharding."""
        return format_of(self._spec)

    @property
    def committed(self) -> bool:
        """Whether the array was placed explicitly, so that it is not moved implicitly."""
        return self._spec.committed

    _committed = committed

    def devices(self) -> set[Device]:
        """Return the devices that hold a part of the array."""
        return set(self._spec.sharding.device_set)

    @property
    def device(self) -> Any:
        """The device that holds the whole array, or its sharding if there are several."""
        devices = self._spec.sharding.device_set
        return next(iter(devices)) if len(devices) == 1 else self._spec.sharding

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        return self._spec.sharding.is_fully_replicated

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all shards are on devices of this process."""
        return self._spec.by_process is None

    @property
    def global_shards(self) -> list["Shard"]:
        """One `Shard` per device of all processes; shards of other processes have no data (None)."""
        self._live()
        if not hasattr(self, "_parts"):
            self._parts = shards(self)
        return list(self._parts)

    @property
    def addressable_shards(self) -> list["Shard"]:
        """One `Shard` per device of this process: its device, index into the global array, replica number and data."""
        all_shards = self.global_shards
        return (
            all_shards
            if self._spec.by_process is None
            else [shard for shard in all_shards if shard.device.is_addressable]
        )

    def _fully_replicated_shard(self) -> "Array":
        """Return the value of a fully replicated array on one device of this process; libraries use the name."""
        return self.addressable_data(0)

    def addressable_data(self, index: int) -> "Array":
        """Return the data of the addressable shard number `index`."""
        data = self.addressable_shards[index].data
        assert data is not None  # shards of this process have data
        return data

    # ---- life
    def is_deleted(self) -> bool:
        """Return whether the array was deleted or donated."""
        return self._buffer is None

    def delete(self) -> None:
        """Release the memory now; any later use raises RuntimeError."""
        self._drop_views()
        self._buffer = None

    def _drop_views(self) -> None:
        """Drop the cached views of the memory."""
        for name in ("_view", "_parts"):
            if hasattr(self, name):
                delattr(self, name)

    def is_ready(self) -> bool:
        """Return whether the values are computed; reading them earlier waits."""
        return self._spec.backend.is_ready(self._checked_buffer())

    def block_until_ready(self) -> "Array":
        """Wait for the values and return the array; raise the error of the program that computes them."""
        if type(self._buffer) in PENDING_BUFFER_TYPES:
            self._spec.backend.wait(self._checked_buffer())
        return self

    def copy_to_host_async(self) -> None:
        """Start a copy of the value to the host; a later read completes it."""
        buffer = self._checked_buffer()
        if self._spec.held is None:
            self._spec.backend.start_copy_to_host(buffer, self._spec.stored)

    def on_device_size_in_bytes(self) -> int:
        """Return the bytes of all shards on devices with their own memory; every replica counts."""
        shard = math.prod(self._spec.local_shape) * self._spec.storage_dtype.itemsize
        return shard * len(self._spec.sharding.device_assignment)

    def unsafe_buffer_pointer(self) -> int:
        """Return the address of the memory of an array on one device, valid while the array is alive."""
        if len(self._spec.sharding.device_assignment) != 1:
            raise ValueError(
                f"unsafe_buffer_pointer: {self._spec.aval.str_short()} is on several devices; use the data of one of "
                "x.addressable_shards."
            )
        memory = self._device_memory()
        return self._numpy().ctypes.data if memory is None else memory.address

    def _device_memory(self) -> DeviceMemory | None:
        """Return the memory on a device; None for arrays in host memory."""
        return self._spec.backend.device_memory(self._live(), self._spec.stored)

    def _checked_buffer(self) -> Any:
        """Return the buffer, or its placeholder while values are computed; raise RuntimeError if it was deleted."""
        if self._buffer is None:
            raise RuntimeError(
                f"Array has been deleted with shape={self._spec.aval.str_short()}. It was donated to a compiled "
                "function or deleted explicitly. Use the result of that call, or do not donate it "
                "(donate_argnums / donate_argnames)."
            )
        return self._buffer

    def _check_if_deleted(self) -> None:
        """Raise RuntimeError if the array was deleted or donated; libraries use the name."""
        self._checked_buffer()

    def _live(self) -> Any:
        """Wait until the values are computed, and return the buffer."""
        buffer = self._buffer = self._spec.backend.adopt(self._checked_buffer(), self._spec)
        return buffer

    # ---- values on the host
    def _numpy(self) -> np.ndarray:
        """Return the global value, read-only: a view of the buffer if the backend has one, else a new array. Raises RuntimeError if parts
        of it are on other processes."""
        if self._buffer is not None:
            try:
                return self._view
            except AttributeError:
                pass
        buffer, spec = self._live(), self._spec
        if spec.has_terms:
            raise _not_added_up(self)
        if spec.held is not None:
            raise _not_here(self)
        value = spec.backend.view(buffer, spec.stored)
        is_view = value is not None
        value = undo_transpose(
            value if is_view else spec.backend.get(buffer, spec.stored), spec.order
        )
        value.flags.writeable = False
        if is_view and not dtypes.is_extended(self.dtype):  # `__array__` returns the cached view
            self._view = value
        return value

    def _numbers(self, api: str) -> np.ndarray:
        """Return the global value like `_numpy`; raise TypeError for random keys."""
        if dtypes.is_extended(self.dtype):
            raise TypeError(
                spell_names(
                    f"{api}: random keys of type {self.aval.str_short()} have no NumPy value; use weft.random.key_data."
                )
            )
        return self._numpy()

    @property
    def _value(self) -> np.ndarray:
        """The global value in NumPy; libraries use the name."""
        return self._numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if dtype is None and copy is None and self._buffer is not None:
            try:
                return self._view
            except AttributeError:
                pass
        value = self._numbers("numpy.asarray")
        if copy is False and (
            not hasattr(self, "_view") or (dtype is not None and np.dtype(dtype) != value.dtype)
        ):
            raise ValueError(
                f"numpy.asarray: {self.aval.str_short()} laid out as {self.sharding} has no NumPy view"
                f"{'' if dtype is None else f' as {np.dtype(dtype).name}'}; allow a copy (copy=None)."
            )
        if dtype is not None and np.dtype(dtype) != value.dtype:
            return value.astype(dtype)
        return value.copy() if copy else value

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if dtypes.is_extended(self.dtype):
            raise TypeError(
                spell_names(
                    f"__dlpack__: random keys of type {self.aval.str_short()} have no DLPack form; "
                    "use weft.random.key_data."
                )
            )
        memory = None if copy else self._device_memory()
        if (
            memory is not None
            and dl_device in (None, (memory.device_type, memory.device_id))
            and self._spec.order is None
        ):
            from weft._engine.runtime import dlpack

            return dlpack.capsule_of_device_memory(memory, self.shape, self.dtype)
        value = self._numpy()
        # consumers of older versions do not support read-only memory
        versioned = (max_version or (0, 0))[0] >= 1
        value = value if versioned else value.copy()
        from weft._engine.runtime import dlpack  # not needed for a first result

        return dlpack.capsule_of(
            value, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __buffer__(self, flags: int) -> memoryview:
        """Return the value as a read-only memoryview, from Python 3.12 on; raise BufferError for dtypes that Python lacks, for a writable
        buffer, and for arrays that are not in one memory."""
        if flags & 1:
            raise BufferError(
                f"memoryview: arrays are immutable, but a writable buffer of {self.aval.str_short()} was requested."
            )
        if (
            dtypes.is_extended(self.dtype)
            or self.dtype.kind == "V"
            or self.dtype.char not in np.typecodes["All"]
        ):
            raise BufferError(
                f"Buffers of type {self.aval.str_short()} are not supported by the Python buffer protocol."
            )
        value = self._numpy()
        if not hasattr(self, "_view"):
            raise BufferError(
                f"memoryview: {self.aval.str_short()} laid out as {self.sharding} is not in one memory. Copy it with "
                "numpy.asarray."
            )
        return value.data

    def __dlpack_device__(self) -> tuple[int, int]:
        memory = self._device_memory()
        return (1, 0) if memory is None else (memory.device_type, memory.device_id)

    def item(self, *args: int) -> Any:
        """Return the single element (or the one at the given position) as a Python scalar."""
        try:
            return (
                self._numbers("item").item(*args)
                if args or (number := self._number()) is None
                else number
            )
        except Exception as error:
            clean_method_error(error)
            raise

    def tolist(self) -> Any:
        """Return the value as nested Python lists."""
        return self._numbers("tolist").tolist()

    def tobytes(self, order: Literal["C", "F", "A", "K"] | None = "C") -> bytes:
        return self._numbers("tobytes").tobytes(order)

    def __bool__(self) -> bool:
        try:
            return bool(self._scalar("bool") if (number := self._number()) is None else number)
        except Exception as error:
            clean_method_error(error)
            raise

    def __int__(self) -> int:
        try:
            return int(self._real_scalar("int") if (number := self._number()) is None else number)
        except Exception as error:
            clean_method_error(error)
            raise

    def __float__(self) -> float:
        try:
            return float(
                self._real_scalar("float") if (number := self._number()) is None else number
            )
        except Exception as error:
            clean_method_error(error)
            raise

    def _number(self) -> bool | int | float | None:
        """Return the value of a scalar of a C type, read from memory; None for other or deleted arrays."""
        read, buffer = self._spec.read_scalar, self._buffer
        return None if read is None or buffer is None else read(buffer)

    def __complex__(self) -> complex:
        try:
            return complex(self._scalar("complex"))
        except Exception as error:
            clean_method_error(error)
            raise

    def __index__(self) -> int:
        try:
            check_number(self.aval, "index")
            return int(self._numpy())
        except Exception as error:
            clean_method_error(error)
            raise

    def _scalar(self, kind: str):
        check_number(self.aval, kind)
        return self._numpy().reshape(())[()]

    def _real_scalar(self, kind: str):
        value = self._scalar(kind)
        if np.iscomplexobj(value):
            raise TypeError(
                f"{kind}() of an array needs a real number, got {self.aval.str_short()}. Take x.real, or abs(x)."
            )
        return value

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        if dtypes.is_extended(self.dtype) or not _cheap_to_unstack(self):
            return (self[i] for i in range(self.shape[0]))
        return iter(_unstack(self))

    __hash__ = None  # type: ignore[assignment]  # arrays are compared elementwise

    def __format__(self, spec: str) -> str:
        return (
            format(self._numpy()[()] if not self.ndim else self._numpy(), spec)
            if spec
            else str(self)
        )

    def __repr__(self) -> str:
        if self._buffer is None:
            self._live()  # raises
        if self._spec.has_terms:
            return f"Array(shape={self.shape}, dtype={self.dtype.name}, sharding={self.sharding!r})"
        if self._spec.held is not None:
            return f"Array(shape={self.shape}, dtype={self.dtype.name})"
        if dtypes.is_extended(self.dtype):
            return f"Array({self.shape}, dtype={self.dtype.name}) overlaying:\n{self._numpy()}"
        weak = ", weak_type=True" if self.weak_type else ""
        suffix = f"dtype={self.dtype.name}{weak})"
        body = (
            np.array2string(self._numpy(), prefix="Array(", separator=", ") if self.size else "[]"
        )
        empty = f", shape={self.shape}" if not self.size else ""
        last = len(body) - body.rfind("\n") - 1
        gap = "\n      " if last + len(suffix) + 8 > 80 else " "
        return f"Array({body}{empty},{gap}{suffix}"

    def __str__(self) -> str:
        spec = self._spec
        has_value = (
            self._buffer is not None
            and spec.held is None
            and not spec.has_terms
            and not dtypes.is_extended(self.dtype)
        )
        return str(self._numpy()) if has_value else repr(self)

    # ---- copies
    def _as_stored(self) -> "Array":
        """Return the array as its memory stores it: with an extra dim for the terms along unreduced axes, or transposed; else itself."""
        spec = self._spec
        return self if spec.stored is spec else Array(spec.stored, self._live())

    def __reduce__(self):
        return _from_pickle, (self._numpy(), self.aval)

    def __copy__(self) -> "Array":
        return self.__deepcopy__({})

    def __deepcopy__(self, memo) -> "Array":
        if self._spec.held is not None or self._spec.stored is not self._spec:
            return _copy_of_memory(self)
        with AllowTransfers(NO_TRANSFER):
            return from_numpy(self._numpy(), self.aval, self.sharding, self.committed)


def _from_pickle(value: np.ndarray, aval: ShapedArray) -> Array:
    """Return the unpickled array; 64-bit dtypes are truncated when x64 is disabled."""
    dtype = dtypes.canonicalize_dtype(aval.dtype)
    with use_default_device():
        return from_numpy(
            value if dtype == aval.dtype else value.astype(dtype),
            aval.update(dtype=dtype),
            copy=False,
        )


def _not_here(array: Array) -> RuntimeError:
    """Return the error for reading an array with parts on other processes."""
    sharding = array.sharding
    others = sorted({d.process_index for d in sharding.device_assignment if not d.is_addressable})
    local_count = sum(d.is_addressable for d in sharding.device_assignment)
    return RuntimeError(
        describe(
            "reading an array",
            f"fetching the value of {array.aval.str_short()} is not possible: it spans non-addressable devices.",
            [
                ("sharding", repr(sharding)),
                ("devices of this process", f"{local_count} of {sharding.num_devices}"),
                ("other processes that hold parts", ", ".join(map(str, others))),
            ],
            user_frame(),
            "A process reads only values on its own devices.",
            "Call multihost_utils.process_allgather(x, tiled=True) in every process, or read the x.addressable_shards of this one.",
        )
    )


def _not_added_up(array: Array) -> NotImplementedError:
    """Return the error for reading an array whose terms are not summed yet."""
    return NotImplementedError(
        describe(
            "reading an array",
            f"the value of {array.aval.str_short()} is an unreduced sum.",
            [("sharding", repr(array.sharding))],
            user_frame(),
            "Along unreduced axes each device holds a term of the value, and reading communicates nothing.",
            "Sum it with weft.sharding.reshard(x, P()), or read the terms from x.addressable_shards.",
        )
    )


def _copy_of_memory(array: Array) -> Array:
    """Return a copy of `array`, with the same layout, of the shards that this process has."""
    spec, buffer = array._spec, array._live()
    if not spec.storage_bytes:
        return Array(spec, buffer)
    return Array(
        spec,
        spec.backend.put_blocks(
            np.array(spec.backend.get_blocks(buffer, spec.stored)), spec.stored
        ),
    )


def _cheap_to_unstack(array: Array) -> bool:
    spec = array._spec
    return (
        len(spec.sharding.device_assignment) == 1 and spec.held is None and spec.backend.has_values
    )


def _unstack(array: Array) -> list[Array]:
    """Return copies of the rows of an array on one device."""
    value = array._numpy()
    sharding = (
        array.sharding.without_dim(0)
        if isinstance(array.sharding, NamedSharding)
        else array.sharding
    )
    spec = ArraySpec(array.aval.without_dim(0), sharding, array.committed)
    return [Array(spec, spec.backend.put(np.asarray(row), spec)) for row in value]


def is_supported_dtype(dtype: Any) -> bool:
    """Return whether arrays of a dtype can be exported by DLPack: whether their `__dlpack__` works.

    >>> from weft._engine.runtime.array import is_supported_dtype
    >>> is_supported_dtype("float32"), is_supported_dtype(weft.dtypes.bfloat16)
    (True, False)
    """
    if dtypes.is_extended(dtype):
        return False
    try:
        np.empty(0, dtype).__dlpack__()
    except (BufferError, TypeError):
        return False
    return True


#: the array spec of an array
spec_of = operator.attrgetter("_spec")


class Shard:
    """The part of an array on one device.

    `data`, the local array on `device`, is block `index` of the global array; `replica_id` numbers the copies of equal blocks. `data` is
    committed if the array is, and None if another process drives the device.

    >>> shard = wnp.arange(3).addressable_shards[0]
    >>> shard.device.id, shard.index, shard.replica_id, shard.data
    (0, (slice(None, None, None),), 0, Array([0, 1, 2], dtype=int32))
    """

    __module__ = "weft"

    __slots__ = ("device", "index", "replica_id", "data")

    def __init__(
        self,
        device: Device,
        sharding: Sharding,
        global_shape: Sequence[int],
        data: Array | None = None,
    ):
        """Describe the block `data` on `device` of an array of `global_shape` with the given `sharding`."""
        blocks = sharding.devices_indices_map(tuple(global_shape))
        if device not in blocks:
            raise ShardingError(
                f"Shard: {sharding} has no block on {device}. Pass one of the devices of the sharding."
            )
        devices = list(blocks)
        self._describe(
            device,
            blocks[device],
            sum(blocks[d] == blocks[device] for d in devices[: devices.index(device)]),
            data,
        )

    def _describe(
        self, device: Device, index: tuple[slice, ...], replica_id: int, data: Array | None
    ) -> Shard:
        self.device, self.index, self.replica_id = device, index, replica_id
        #: the local array, on its device; it shares memory with the global array if the backend supports it
        self.data = data
        return self

    @classmethod
    def of(
        cls,
        array: Array,
        device: Device,
        replica_id: int,
        local: ArraySpec | None,
        position: tuple[int, ...],
    ) -> Shard:
        """Return the block of `array` at `position`, with its data if `local`, the array spec of the data, is not None."""
        spec, data = array._spec, None
        terms = int(spec.has_terms)
        index = block_index(position[terms:], spec.local_shape[terms:], spec.splits[terms:])
        index = index if spec.order is None else tuple([index[d] for d in inverse(spec.order)])
        if local is not None:
            if spec.held is not None:
                position = tuple([mine.index(p) for mine, p in zip(spec.held, position)])
            position += (0,) * (len(spec.splits) - len(position))
            data = Array(
                local, spec.backend.shard(array._live(), spec.stored, position, local.stored)
            )
        return cls.__new__(cls)._describe(device, index, replica_id, data)

    def __repr__(self) -> str:
        data = None if self.data is None else self.data._numpy()
        return f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, data={data})"


def shards(array: Array) -> list[Shard]:
    """Return the shards of `array` on all processes, in the order of its sharding's devices."""
    spec = array._spec
    sharding, ndim, terms = array.sharding, array.ndim, int(spec.has_terms)
    positions = spec.stored.sharding.shard_of_device(ndim + terms)
    local = spec.local_shape[terms : ndim + terms]
    aval = spec.aval.update(
        shape=local if spec.order is None else tuple([local[d] for d in inverse(spec.order)]),
        sharding=None,
    )
    seen: dict[tuple, int] = {}
    result, local_spec = [], None
    for device, position in zip(sharding.device_assignment, positions):
        replica = seen.get(position, 0)
        seen[position] = replica + 1
        shard_spec = None
        if device.is_addressable:
            shard_spec = local_spec = (
                local_spec.on_device(device)
                if local_spec
                else ArraySpec(
                    aval,
                    SingleDeviceSharding(device, memory_kind=sharding.memory_kind),
                    spec.committed,
                    spec.order,
                )
            )
        result.append(Shard.of(array, device, replica, shard_spec, position))
    return result


def from_numpy(
    value: np.ndarray,
    aval: ShapedArray | None = None,
    sharding: Sharding | None = None,
    committed: bool | None = None,
    copy: bool = True,
    order: tuple[int, ...] | None = None,
) -> Array:
    """Return an Array with the global value `value` (of the dtype of `aval`), the given sharding, and dims stored in `order`."""
    if aval is None:
        aval = ShapedArray(value.shape, value.dtype)
    where, placed = placement_of_new() if sharding is None else (sharding, True)
    spec = ArraySpec(aval, where, placed if committed is None else committed, order)
    if has_guard():
        to_device(aval, spec.sharding)
    return put(value, spec, copy)


def put(value: np.ndarray, spec: ArraySpec, copy: bool = True) -> Array:
    """Return the array with the global value `value` and the given array spec. Without `copy` it may share memory."""
    return Array(spec, spec.backend.put(transpose(value, spec.order), spec.stored, copy))
