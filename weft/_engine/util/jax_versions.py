"""Behavior that differs between versions of JAX, as one record.

In:   the setting `jax_api`, which programs for older or newer versions of JAX set.
Out:  `jax_behavior()`; the engine reads its fields and does not compare versions.
"""

from __future__ import annotations

import functools

from weft._engine.util.config import api_version
from weft._engine.util.record import record


@record
class JaxBehavior:
    """The behavior of one version of JAX; the defaults apply if no version is set."""

    explicit_make_mesh: bool = False  # make_mesh: axes are explicit by default
    constraints_refuse_explicit_axes: bool = False  # with_sharding_constraint
    short_type_names: bool = False  # str(aval) is f32[3]
    mesh_context_hides_specs: bool = False  # specs alone have no mesh in `with mesh:`
    deprecated_mesh_context: bool = False  # `with mesh:` warns
    long_out_specs_refused: bool = False  # shard_map: trailing None count as entries
    functions_in_bind_params: bool = False  # get_bind_params: `subfuns` is a parameter
    long_device_names: bool = False  # str(device) is TFRT_CPU_0


#: field -> the first version with this behavior
_SINCE = {
    "explicit_make_mesh": (0, 9),
    "constraints_refuse_explicit_axes": (0, 9),
    "short_type_names": (0, 9),
    "functions_in_bind_params": (0, 9, 2),
    "mesh_context_hides_specs": (0, 10),
    "long_out_specs_refused": (0, 10),
    "deprecated_mesh_context": (0, 10, 1),
}


def jax_behavior() -> JaxBehavior:
    """Return the behavior of the version that `jax_api` sets, or weft's own.

    >>> jax_behavior().explicit_make_mesh
    False
    """
    return _behavior_of(api_version())


@functools.cache
def _behavior_of(version: tuple[int, ...]) -> JaxBehavior:
    facts = {name: version >= since for name, since in _SINCE.items()}
    return JaxBehavior(**facts, long_device_names=() < version < (0, 9))
