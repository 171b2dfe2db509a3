"""Placement of computations on the devices or on their host.

In:   a compute type, and functions.
Out:  the same functions.
Laws: for CPUs the device and its host are the same, so compute types are checked but have no effect.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

_PLACES = ("device", "device_host", "tpu_sparsecore")


def _check_place(name: str, compute_type: Any) -> None:
    if not isinstance(compute_type, str):
        raise TypeError(f"{name}: compute_type must be a string, got {compute_type!r}.")
    if compute_type == "tpu_sparsecore" or compute_type.startswith("gpu_stream:"):
        raise NotImplementedError(
            f"{name}: {compute_type!r} exists on TPUs and GPUs only; the devices are CPUs."
        )
    if compute_type not in _PLACES:
        raise ValueError(
            f"{name}: Invalid compute type {compute_type!r}. Current supported values are `device_host`, `device`,"
            " `tpu_sparsecore` and `gpu_stream:#`."
        )


@contextlib.contextmanager
def compute_on(compute_type: str) -> Iterator[None]:
    """Run the operations inside on the host of the devices ("device_host") or on the devices ("device"), which are the same for CPUs.

    Raises ValueError for an unknown compute type; NotImplementedError for a part of a TPU or a GPU. Can be used as a
    decorator.

    >>> from weft.experimental.compute_on import compute_on
    >>> with compute_on("device_host"):
    ...     y = wnp.ones(2) * 2
    >>> y.tolist()
    [2.0, 2.0]
    """
    _check_place("compute_on", compute_type)
    yield


def compute_on2(
    f: Callable | None = None,
    *,
    compute_type: str,
    out_memory_spaces: Any,
    compiler_options: Any = None,
) -> Callable:
    """Return `f`, computed on the host of the devices or on the devices; its results are in `out_memory_spaces`; there is one memory space.

    >>> from weft.experimental.compute_on import compute_on2
    >>> float(compute_on2(wnp.sin, compute_type="device_host", out_memory_spaces=None)(0.0))
    0.0
    """
    if f is None:
        return functools.partial(
            compute_on2,
            compute_type=compute_type,
            out_memory_spaces=out_memory_spaces,
            compiler_options=compiler_options,
        )
    _check_place("compute_on2", compute_type)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    return wrapped
