"""`Layout` and `Format`: the order of an array's dims in memory, and that order with a sharding.

Law: every shard is stored with its last dim adjacent in memory (row-major); a request for another order is refused.
"""

from __future__ import annotations

import enum
from typing import Any

from weft.util.errors import describe
from weft.util.record import record


class _Auto(enum.Enum):
    """The layout that the compiler chooses: row-major."""
    AUTO = "AUTO"

    def __repr__(self) -> str:
        return "AUTO"

    __str__ = __repr__


@record
class Layout:
    """The order of dims in memory, the slowest first. `Layout.AUTO` leaves it to the compiler.

    >>> Layout(major_to_minor=(0, 1))
    Layout(major_to_minor=(0, 1), tiling=None, sub_byte_element_size_in_bits=0)
    """
    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0

    def __post_init__(self):
        object.__setattr__(self, "major_to_minor", tuple(self.major_to_minor))


Layout.AUTO = _Auto.AUTO  # type: ignore[attr-defined]


def is_layout(x: Any) -> bool:
    """Whether `x` is a layout or `Layout.AUTO`."""
    return isinstance(x, (Layout, _Auto))


@record
class Format:
    """A layout and a sharding; each may be None. Accepted wherever a sharding is.

    Raises TypeError for another layout or sharding, ValueError for a layout whose sharding is missing.

    >>> wnp.zeros((2, 3)).format.layout.major_to_minor
    (0, 1)
    """
    layout: Any = None
    sharding: Any = None

    def __post_init__(self):
        if self.layout is not None and not is_layout(self.layout):
            raise TypeError(f"Format: layout must be a Layout, Layout.AUTO or None, got {self.layout!r}.")
        if isinstance(self.layout, Layout) and self.sharding is None:
            raise ValueError(f"Format: a concrete layout needs a concrete sharding, got {self.layout} alone. Give a NamedSharding or a "
                             "SingleDeviceSharding with it, or Layout.AUTO.")


def row_major(ndim: int, sharding: Any) -> Format:
    """The format of an array of `ndim` dims."""
    return Format(Layout(tuple(range(ndim)), ()), sharding)


def check_row_major(format: Format, ndim: int | None, what: str) -> None:
    """Raise unless a format asks for the order that arrays have: ValueError if it does not fit `ndim` dims, else NotImplementedError."""
    layout = format.layout
    if not isinstance(layout, Layout):
        return
    order, rank = layout.major_to_minor, len(layout.major_to_minor) if ndim is None else ndim
    if sorted(order) != list(range(rank)):
        raise ValueError(describe(what, f"the layout {layout} does not fit an array of {rank} dims.", (), None,
                                  "Length of major_to_minor and the rank of the value should match: it names every dim once.",
                                  f"Use major_to_minor={tuple(range(rank))}."))
    if order != tuple(range(rank)) or layout.tiling:
        raise NotImplementedError(f"{what}: arrays are stored row-major; the layout {layout} is not supported. Transpose the array "
                                  f"instead, or ask for major_to_minor={tuple(range(rank))} or Layout.AUTO.")
