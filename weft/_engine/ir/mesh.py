"""Meshes: devices in a grid with named axes.

A `Mesh` contains devices; an `AbstractMesh` has only sizes, names and types of axes. Both are interned: equal meshes are one object.
`with mesh:`, `set_mesh` and `use_mesh` set the *current* mesh of a thread; `current_mesh` and `get_abstract_mesh` return it.
This module uses devices only by their attributes such as `id`, `platform` and `process_index` (see `runtime.device`).
"""

from __future__ import annotations

import enum
import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine import hooks
from weft._engine.util.config import config
from weft._engine.util.dispatch_state import guard, new_epoch
from weft._engine.util.errors import ShardingError
from weft._engine.util.jax_versions import jax_behavior
from weft._engine.util.messages.notebook import NotebookDisplay
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import field, record
from weft._engine.util.source import warn_user


class AxisType(enum.Enum):
    """The mode of a mesh axis. The compiler (Auto), types (Explicit) or the program (Manual) determine how values are split over it.

    >>> AbstractMesh((2,), ('x',), axis_types=(AxisType.Explicit,)).axis_types
    (Explicit,)
    """

    __module__ = "weft.sharding"

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


def _normalized_types(axis_types: Any, n: int) -> tuple[AxisType, ...]:
    if axis_types is None:
        return (AxisType.Auto,) * n
    if isinstance(axis_types, AxisType):
        axis_types = (axis_types,)
    types = tuple(axis_types)
    if not all(isinstance(t, AxisType) for t in types):
        raise TypeError(
            f"Mesh: axis_types must be of type AxisType, got {axis_types!r}.\n  Pass one for each of the {n} mesh axes."
        )
    if len(types) != n:
        raise ValueError(
            f"Mesh: it has {quantity(n, 'axis')}, and axis_types is {types}.\n"
            "  Number of axis names should match the number of axis_types."
        )
    return types


def _normalized_names(axis_names: Any) -> tuple[Any, ...]:
    names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    if len(set(names)) != len(names):
        raise ShardingError(
            f"Mesh: axis names {names} repeat a name.\n  Mesh axes must have different names."
        )
    if None in names:
        raise ShardingError(
            f"Mesh: axis names {names} contain None. Mesh axis names cannot be None.\n"
            "  None means 'not split' in a spec; use a string."
        )
    return names


class _MeshBase(NotebookDisplay):
    """The base class of `Mesh` and `AbstractMesh`: sizes, names and types of axes."""

    __slots__ = ()
    axis_names: tuple[Any, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]

    @property
    def shape(self) -> OrderedDict[Any, int]:
        """Sizes by axis name, in order."""
        return OrderedDict(zip(self.axis_names, self.axis_sizes))

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        """(name, size) pairs, in order."""
        return tuple(zip(self.axis_names, self.axis_sizes))

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.axis_sizes) if self.axis_names else 0

    @property
    def empty(self) -> bool:
        """Whether it has no axes."""
        return not self.axis_names

    def axes_of_type(self, kind: AxisType) -> tuple[Any, ...]:
        """Return the names of the axes of type `kind`."""
        return tuple(n for n, t in zip(self.axis_names, self.axis_types) if t is kind)

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        return self.axes_of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        return self.axes_of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        return self.axes_of_type(AxisType.Manual)

    are_all_axes_auto = property(lambda self: all(t is AxisType.Auto for t in self.axis_types))
    are_all_axes_explicit = property(
        lambda self: all(t is AxisType.Explicit for t in self.axis_types)
    )
    are_all_axes_manual = property(lambda self: all(t is AxisType.Manual for t in self.axis_types))

    def _body(self) -> str:
        sizes = ", ".join(f"{n!r}: {s}" for n, s in self.shape_tuple)
        return f"{sizes or '()'}, axis_types={_types_text(self.axis_types)}"


def _types_text(types: tuple[AxisType, ...]) -> str:
    return f"({', '.join(t.name for t in types)}{',' if len(types) == 1 else ''})"


#: interned meshes; only `setdefault` adds entries, because neither threads nor signal handlers can interrupt it
_meshes: dict[tuple[Any, ...], Mesh] = {}
_abstract_meshes: dict[tuple[Any, ...], AbstractMesh] = {}
#: (sizes, names, types) -> the most recently requested mesh
_latest: dict[tuple[Any, ...], Mesh] = {}
#: mesh -> one device of each process that has devices in the mesh
_process_devices: dict[Mesh, tuple[Any, ...]] = {}


def clear_process_cache() -> None:
    """Clear the cached processes of meshes, after devices have moved to other processes."""
    _process_devices.clear()


class Mesh(_MeshBase):
    """A grid of devices with named axes.

    As a context manager or as the decorator of a function it is the current mesh. This is deprecated in favor of `set_mesh`: it emits
    a DeprecationWarning if `config.jax_api` is "0.10.1" or newer.
    `devices` is an array with one dim per axis name. Raise ShardingError for another number of names, or if a device occurs twice.

    >>> mesh = Mesh(np.array(weft.devices()[:4]).reshape(2, 2), ('row', 'col'))
    >>> mesh
    Mesh(axis_sizes=(2, 2), axis_names=('row', 'col'), axis_types=(Auto, Auto))
    >>> print(mesh)
    Mesh('row': 2, 'col': 2, axis_types=(Auto, Auto))
    >>> mesh.shape, mesh.abstract_mesh.size, mesh.update(axis_names=('x', 'y')).axis_names
    (OrderedDict([('row', 2), ('col', 2)]), 4, ('x', 'y'))
    """

    __module__ = "weft.sharding"

    __slots__ = ("__weakref__", "_flat", "axis_names", "axis_sizes", "axis_types", "devices")

    devices: np.ndarray
    _flat: tuple[Any, ...]

    def __new__(cls, devices: Any, axis_names: Any, axis_types: Any = None) -> Mesh:
        grid = np.array(devices, dtype=object)
        names = _normalized_names(axis_names)
        if grid.ndim != len(names):
            raise ShardingError(
                f"Mesh: the ndim of its first argument must be the number of axis names. The devices form an array of rank {grid.ndim}, "
                f"but {len(names)} axis names were given: "
                f"{names}.\n    devices   shape {grid.shape}\n"
                "  A mesh has one name per dim of its device array. Reshape the devices, or name every dim."
            )
        types = _normalized_types(axis_types, len(names))
        flat = tuple(grid.flat) if names else ()
        if len(set(flat)) != len(flat):
            raise ShardingError(
                "Mesh: a device appears more than once.\n"
                f"    devices   {[getattr(d, 'id', d) for d in flat]}\n"
                "  A mesh contains every device at most once."
            )
        key = (flat, grid.shape, names, types)
        mesh = _meshes.get(key)
        if mesh is None:
            mesh = object.__new__(cls)
            grid.flags.writeable = False
            mesh.devices, mesh.axis_names, mesh.axis_types = grid, names, types
            mesh.axis_sizes, mesh._flat = grid.shape, flat
            mesh = _meshes.setdefault(key, mesh)
        if AxisType.Explicit in types:
            _latest[grid.shape, names, types] = mesh
        return mesh

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_mesh_object, (np.array(self.devices), self.axis_names, self.axis_types)

    def __copy__(self) -> Mesh:
        return self

    def __deepcopy__(self, memo: dict[Any, Any]) -> Mesh:
        return self

    @property
    def flat_devices(self) -> tuple[Any, ...]:
        """All devices in row-major order of the grid."""
        return self._flat

    @property
    def device_ids(self) -> np.ndarray:
        """Ids of the devices, as an array with the shape of the mesh."""
        return np.array([d.id for d in self._flat], int).reshape(self.axis_sizes)

    @property
    def is_multi_process(self) -> bool:
        """Whether its devices belong to more than one process."""
        return len({d.process_index for d in self._process_devices}) > 1

    @property
    def _process_devices(self) -> tuple[Any, ...]:
        """One device of each process that has devices in the mesh. Checks of processes need only these devices."""
        devices = _process_devices.get(self)
        if devices is None:
            devices = _process_devices[self] = tuple(
                {(getattr(d, "client", None), d.process_index): d for d in self._flat}.values()
            )
        return devices

    @property
    def is_addressable(self) -> bool:
        """Whether all devices are devices of this process."""
        return all(d.is_addressable for d in self._process_devices)

    @property
    def local_devices(self) -> list[Any]:
        """The devices of this process."""
        return [d for d in self._flat if d.is_addressable]

    @property
    def local_mesh(self) -> Mesh:
        """The sub-grid of the devices of this process. ShardingError if they are not a sub-grid."""
        if not self.is_multi_process:
            return self
        mine = np.array([d.is_addressable for d in self._flat], bool).reshape(self.axis_sizes)
        where = [np.unique(ix) for ix in np.nonzero(mine)]
        sub = self.devices[np.ix_(*where)]
        if sub.size != mine.sum():
            raise ShardingError(
                f"Mesh.local_mesh: the devices of this process are not a sub-grid of {self!r}."
            )
        return Mesh(sub, self.axis_names, axis_types=self.axis_types)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh without its devices: axis names, sizes and types."""
        return AbstractMesh(self.axis_sizes, self.axis_names, axis_types=self.axis_types)

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        """Return a copy with some parts replaced."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            axis_types=self.axis_types if axis_types is None else axis_types,
        )

    def __enter__(self) -> Mesh:
        if config.disallow_mesh_context_manager:
            raise RuntimeError(
                "A mesh was entered as a context manager, but config.disallow_mesh_context_manager is set. Use set_mesh."
            )
        if jax_behavior().deprecated_mesh_context:
            warn_user(
                "`with mesh:` is deprecated. Write `with weft.set_mesh(mesh):` instead.",
                DeprecationWarning,
            )
        return enter_mesh(self).__enter__()

    def __exit__(self, *exc: Any) -> None:
        _leave()

    def __call__(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fun)
        def within(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fun(*args, **kwargs)

        return within

    def __repr__(self) -> str:
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, axis_types={_types_text(self.axis_types)})"

    def __str__(self) -> str:
        return f"Mesh({self._body()})"


def _make_mesh_object(devices: Any, names: Any, types: Any) -> Mesh:
    return Mesh(devices, names, axis_types=types)


@record
class AbstractDevice:
    """The kind of devices that an abstract mesh describes. Code that depends on the platform can read it.

    >>> mesh = AbstractMesh((4,), 'x', abstract_device=AbstractDevice("gpu", 1, "cuda"))
    >>> mesh.abstract_device.platform, mesh.update(axis_sizes=(2,)).abstract_device == mesh.abstract_device
    ('cuda', True)
    """

    __module__ = "weft.sharding"

    device_kind: str
    num_cores: int | None
    platform: str


class AbstractMesh(_MeshBase):
    """A mesh without devices: sizes, names and types of its axes.

    `abstract_device` is the kind of devices that it describes; the default is the kind of this process's devices. It does not
    change programs.

    >>> mesh = AbstractMesh((4, 2), ('x', 'y'))
    >>> mesh.size, dict(mesh.shape), mesh.abstract_mesh is mesh, mesh.update(axis_sizes=(2, 2)).size
    (8, {'x': 4, 'y': 2}, True, 4)
    """

    __module__ = "weft.sharding"

    __slots__ = ("__weakref__", "meant_for", "axis_names", "axis_sizes", "axis_types")
    meant_for: AbstractDevice | None

    def __new__(
        cls,
        axis_sizes: Any,
        axis_names: Any = None,
        axis_types: Any = None,
        *,
        abstract_device: Any = None,
    ) -> AbstractMesh:
        if axis_names is None:  # older programs pass (name, size) pairs
            axis_names, axis_sizes = zip(*axis_sizes) if axis_sizes else ((), ())
        sizes = tuple(int(s) for s in axis_sizes)
        names = _normalized_names(axis_names)
        if len(sizes) != len(names):
            raise ShardingError(
                f"AbstractMesh: {quantity(len(sizes), 'size')} {sizes} for {quantity(len(names), 'name')} {names}."
            )
        types = _normalized_types(axis_types, len(names))
        if abstract_device is not None and not isinstance(abstract_device, AbstractDevice):
            raise TypeError(
                f"AbstractMesh: abstract_device must be an AbstractDevice or None, got {abstract_device!r}."
            )
        if abstract_device is not None:
            home = hooks.home_device()
            if home is not None and (home.platform, home.device_kind) == (
                abstract_device.platform,
                abstract_device.device_kind,
            ):
                abstract_device = None  # the default: the kind of this process's devices
        key = (sizes, names, types, abstract_device)
        mesh = _abstract_meshes.get(key)
        if mesh is None:
            mesh = object.__new__(cls)
            mesh.axis_sizes, mesh.axis_names, mesh.axis_types, mesh.meant_for = (
                sizes,
                names,
                types,
                abstract_device,
            )
            mesh = _abstract_meshes.setdefault(key, mesh)
        return mesh

    def __reduce__(self) -> tuple[Any, ...]:
        args = self.axis_sizes, self.axis_names, self.axis_types
        return (
            (AbstractMesh, args)
            if self.meant_for is None
            else (_make_abstract, (*args, self.meant_for))
        )

    @property
    def abstract_device(self) -> AbstractDevice | None:
        """The kind of devices that the mesh describes; None for a mesh without axes and without an explicit kind."""
        return hooks.home_device() if self.meant_for is None and self.axis_names else self.meant_for

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh itself."""
        return self

    def update(
        self,
        axis_sizes: Any = None,
        axis_names: Any = None,
        axis_types: Any = None,
        *,
        abstract_device: Any = None,
    ) -> AbstractMesh:
        """Return a copy with some parts replaced."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            abstract_device=self.meant_for if abstract_device is None else abstract_device,
        )

    def update_axis_types(self, axis_types: Any) -> AbstractMesh:
        """Return a copy with other types for some axes, given by name.

        >>> AbstractMesh((4, 2), ('x', 'y')).update_axis_types({'y': AxisType.Explicit})
        AbstractMesh('x': 4, 'y': 2, axis_types=(Auto, Explicit))
        """
        unknown = [name for name in axis_types if name not in self.axis_names]
        if unknown:
            raise ShardingError(f"AbstractMesh.update_axis_types: {self!r} has no axes {unknown}.")
        return self.update(
            axis_types=tuple(axis_types.get(n, t) for n, t in zip(self.axis_names, self.axis_types))
        )

    def __repr__(self) -> str:
        device = self.meant_for
        return f"AbstractMesh({self._body()}{'' if device is None else f', abstract_device={device!r}'})"


def _make_abstract(sizes: Any, names: Any, types: Any, device: AbstractDevice) -> AbstractMesh:
    return AbstractMesh(sizes, names, types, abstract_device=device)


class _MeshContext(threading.local):
    """The mesh contexts of a thread."""

    def __init__(self) -> None:
        #: meshes entered by a `with` statement, innermost last
        self.stack: list[Any] = []
        #: the mesh set by `set_mesh(mesh)` as a statement
        self.base: Mesh | AbstractMesh | None = None
        #: per entry of `stack`, the mesh of the innermost `set_mesh` or `use_mesh` (`with mesh:` does not count)
        self.chosen: list[Any] = []
        #: per entry of `stack` and per `use_placement_mesh` block, the mesh on which unplaced arrays are put, or None
        self.holders: list[Any] = []


_state = _MeshContext()


def current_mesh() -> Mesh | AbstractMesh | None:
    """Return the mesh that `with mesh:`, `use_mesh` or `set_mesh` made current in this thread, or None.

    >>> current_mesh() is None
    True
    """
    return _state.stack[-1] if _state.stack else _state.base


#: meshes created without axis types, whose axes are Auto here and Explicit in recent versions of JAX
meshes_without_axis_types: set[Mesh] = set()


def _set_mesh_in_context() -> Mesh | AbstractMesh | None:
    return _state.chosen[-1] if _state.chosen else _state.base


def spec_mesh() -> Mesh | AbstractMesh | None:
    """Return the mesh of a PartitionSpec that is used without a mesh, or None.

    It is the current mesh. As in JAX from 0.10 on, `with mesh:` does not count if `config.jax_api` selects such a version.

    >>> spec_mesh() is None
    True
    """
    return _set_mesh_in_context() if jax_behavior().mesh_context_hides_specs else current_mesh()


def placement_mesh() -> Mesh | None:
    """Return the mesh, set by `set_mesh`, on which unplaced arrays are put; None if they are put on the default device.

    >>> placement_mesh() is None
    True
    """
    return _state.holders[-1] if _state.holders else _placement_mesh(_state.base, None)


def _placement_mesh(mesh: Any, outside: Mesh | None) -> Mesh | None:
    """Return the mesh on which unplaced arrays are put while `mesh` is set.

    It is `outside` if `mesh` is abstract, and None if `mesh` has manual axes, because values are shards of one device then.
    """
    if mesh is None or mesh.empty or mesh.manual_axes:
        return None
    return mesh if isinstance(mesh, Mesh) else outside


class use_placement_mesh:
    """Context manager: put unplaced arrays on `mesh`, or on the default device if it is None."""

    __slots__ = ("mesh",)

    def __init__(self, mesh: Mesh | None):
        self.mesh = mesh

    def __enter__(self) -> None:
        _state.holders.append(self.mesh)

    def __exit__(self, *exc: Any) -> None:
        _state.holders.pop()


def use_default_device() -> use_placement_mesh:
    """Return a context manager that places new arrays on the default device, whatever the current mesh is."""
    return use_placement_mesh(None)


def concrete_mesh(mesh: AbstractMesh) -> Mesh | None:
    """Return the mesh of devices with the axes of an abstract mesh: the current mesh, or the most recently created one.

    Return None if there is none, or if the abstract mesh describes another kind of devices.
    """
    if mesh.meant_for is not None:
        return None
    current = current_mesh()
    if isinstance(current, Mesh) and current.abstract_mesh is mesh:
        return current
    return _latest.get((mesh.axis_sizes, mesh.axis_names, mesh.axis_types))


def get_mesh() -> Mesh | AbstractMesh:
    """Return the current mesh, or a mesh without axes."""
    return current_mesh() or EMPTY_MESH


def get_abstract_mesh() -> AbstractMesh:
    """Return the current mesh without its devices, or a mesh without axes."""
    mesh = current_mesh()
    return AbstractMesh((), ()) if mesh is None else mesh.abstract_mesh


class enter_mesh:
    """Context manager with the effect of `with mesh:`. Unlike `set_mesh`, it does not affect the placement of arrays."""

    __slots__ = ("mesh",)

    def __init__(self, mesh: Mesh):
        self.mesh = mesh

    def __enter__(self) -> Mesh:
        _state.chosen.append(_set_mesh_in_context())
        _state.stack.append(self.mesh)
        _state.holders.append(placement_mesh())
        guard[0] += 1
        return self.mesh

    def __exit__(self, *exc: Any) -> None:
        _leave()


def _leave() -> None:
    _state.stack.pop()
    _state.chosen.pop()
    _state.holders.pop()
    guard[0] -= 1


class set_mesh:
    """Make `mesh` the current mesh: permanently if called as a statement, for a block as a context manager.

    New arrays without a placement are put on its devices: they are committed, and replicated or sharded as the compiler chooses.
    Uncommitted arguments of programs are moved there. Arguments that are committed to other devices raise ValueError.
    Raise TypeError if `mesh` is not a mesh, ValueError if it has manual axes.

    >>> mesh = AbstractMesh((2,), ('x',))
    >>> with set_mesh(mesh):
    ...     get_abstract_mesh() is mesh
    True
    >>> get_abstract_mesh().empty
    True
    """

    __module__ = "weft.sharding"

    __slots__ = ("mesh", "previous")
    _inside = False  # whether meshes with manual axes, which shard_map creates, are allowed

    def __init__(self, mesh: Any):
        if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
            raise TypeError(f"set_mesh takes a Mesh, got {type(mesh).__name__}")
        if mesh is not None and mesh.manual_axes and not self._inside:
            raise ValueError(
                f"set_mesh: {mesh} contains manual axes, {mesh.manual_axes}. Only shard_map creates manual axes."
            )
        self.mesh = mesh
        self.previous = _state.base
        _state.base = mesh
        new_epoch()

    def __enter__(self) -> Any:
        _state.base = self.previous
        _state.holders.append(_placement_mesh(self.mesh, placement_mesh()))
        _state.stack.append(self.mesh)
        _state.chosen.append(self.mesh)
        guard[0] += 1
        new_epoch()
        return self.mesh

    def __exit__(self, *exc: Any) -> None:
        _leave()


class use_mesh(set_mesh):
    """Context manager: make `mesh` the current mesh. Raise TypeError if it is not a mesh.

    >>> with use_mesh(AbstractMesh((2,), ('x',))):
    ...     get_abstract_mesh().axis_names
    ('x',)
    """

    __module__ = "weft.sharding"

    __slots__ = ()
    _inside = True

    def __init__(self, mesh: Any):
        super().__init__(mesh)
        _state.base = self.previous


use_abstract_mesh = use_mesh

EMPTY_MESH = Mesh(np.empty((), object), ())


@record
class AUTO:
    """A request, in `in_shardings` and `out_shardings` of `jit`, that the compiler chooses the cheapest sharding over `mesh`.

    Parameters:

    - `mesh`: the mesh over which the argument or result is sharded. All `AUTO`s of a function have the same mesh.

    Other shardings of the function and constraints inside of it are kept. An integer program chooses the shardings of all values
    together; `weft.auto.shardings` returns its decisions as a readable plan.
    `TypeError` is raised if `mesh` is not a mesh, and `ShardingError` if it has explicit or manual axes: their layouts are part
    of types or of the program, so they cannot be chosen.

    >>> weft.AUTO(weft.make_mesh((2,), ("x",))).mesh.axis_names
    ('x',)
    """

    __module__ = "weft"

    mesh: Any
    #: the partitioning method; None: a search
    method: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.mesh, (Mesh, AbstractMesh)):
            raise TypeError(
                f"AUTO: mesh must be a Mesh, got {type(self.mesh).__name__}. Create one with weft.make_mesh(shape, names)."
            )
        check_automatic_axes(self.mesh, "AUTO")


def check_automatic_axes(mesh: Mesh | AbstractMesh, what: str) -> None:
    """Raise ShardingError if the layouts over some axes of a mesh are not the compiler's choice."""
    fixed = ", ".join(
        f"{name!r} is {kind.name}"
        for name, kind in zip(mesh.axis_names, mesh.axis_types)
        if kind is not AxisType.Auto
    )
    if fixed:
        types = ", ".join(["AxisType.Auto"] * len(mesh.axis_names))
        raise ShardingError(
            f"{what}: the mesh has axes that are not automatic: {fixed}. Automatic sharding chooses the layouts of all values, "
            "but explicit axes fix them in types, and manual axes in the program.\n"
            f"  Make the mesh with axis_types=({types},)."
        )
