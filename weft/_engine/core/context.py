"""The ambient settings that affect the result of tracing, as one immutable key.

In:   the settings, the meshes and the named axes that are in force in this thread.
Out:  `current_context`, a `TraceContext`. Equal contexts are one object, so comparing them is fast.
Laws: everything that tracing or compilation reads in addition to its arguments is a field here. Every cache of traces or programs
      has the context, or the relevant part of it, in its key. The current trace is not a field, because a new trace starts where
      the key is computed. The current source line is not a field, because it only affects messages.
"""

from __future__ import annotations

from typing import Any

from weft._engine.core.trace import AxisEnv, trace_state
from weft._engine.ir.mesh import Mesh, current_mesh, placement_mesh, spec_mesh
from weft._engine.util.config import config
from weft._engine.util.dispatch_state import on_clear_caches

#: identity of the settings, other fields -> context
_contexts: dict[tuple[Any, ...], TraceContext] = {}
_MOST_CONTEXTS = 1024


class TraceContext:
    """The ambient inputs of one trace.

    settings          the values of all settings that change tracing, by `config.trace_key`
    mesh              the current mesh
    spec_mesh         the mesh of a PartitionSpec without a mesh
    device_mesh       the mesh on which arrays without a placement are put
    axis_env          the named axes in scope, as (name, size, tracked), innermost last
    allows_unspecified  whether undetermined shardings of results are left open
    unreduced_axes    the mesh axes over which sums are left unreduced
    for_compilation   the part on which the compilation of a traced program depends
    """

    __slots__ = (
        "settings",
        "mesh",
        "spec_mesh",
        "device_mesh",
        "axis_env",
        "allows_unspecified",
        "unreduced_axes",
        "for_compilation",
        "_hash",
    )
    settings: tuple[Any, ...]
    mesh: Mesh | None
    spec_mesh: Mesh | None
    device_mesh: Mesh | None
    axis_env: AxisEnv
    allows_unspecified: bool
    unreduced_axes: frozenset[Any]
    for_compilation: tuple[Any, ...]
    _hash: int

    def __init__(self, *values: Any):
        set_field = object.__setattr__
        for name, value in zip(FIELDS, values, strict=True):
            set_field(self, name, value)
        set_field(self, "for_compilation", (self.settings, self.device_mesh, self.mesh is not None))
        set_field(self, "_hash", hash(values))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"TraceContext is immutable: cannot set {name!r}.")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, TraceContext)
            and self._hash == other._hash
            and all(getattr(self, name) == getattr(other, name) for name in FIELDS)
        )

    def differences(self, other: TraceContext) -> list[tuple[str, Any, Any]]:
        """Return (title, value here, value there) for each field and each setting that differs.

        >>> current_context().differences(current_context())
        []
        """
        settings = config.find_differences(self.settings, other.settings)
        rows = [(f"setting {name}", *values) for name, *values in settings]
        for name, title in TITLES.items():
            values = getattr(self, name), getattr(other, name)
            is_implied = name in ("spec_mesh", "device_mesh") and self.mesh != other.mesh
            if values[0] != values[1] and not is_implied:
                rows.append((title, *values))
        return rows


FIELDS = TraceContext.__slots__[:-2]
#: field -> its name in reports
TITLES = {
    "mesh": "mesh in context",
    "spec_mesh": "mesh of specs",
    "device_mesh": "mesh of unplaced arrays",
    "axis_env": "named axes around the call",
    "allows_unspecified": "undetermined shardings left open",
    "unreduced_axes": "axes left unreduced",
}


def current_context(allows_unspecified: bool | None = None) -> TraceContext:
    """Return the context of this thread, with the field `allows_unspecified` replaced if it is given."""
    state = trace_state
    settings = config.trace_key()
    values = (
        current_mesh(),
        spec_mesh(),
        placement_mesh(),
        state.axis_env,
        state.allows_unspecified if allows_unspecified is None else allows_unspecified,
        state.unreduced_axes,
    )
    key = (id(settings), values)
    context = _contexts.get(key)
    if context is None:
        if len(_contexts) >= _MOST_CONTEXTS:
            _contexts.clear()
        context = _contexts.setdefault(key, TraceContext(settings, *values))
    return context


on_clear_caches(_contexts.clear)
