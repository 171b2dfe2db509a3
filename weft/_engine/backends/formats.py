"""`Layout` and `Format`: the dim order of an array in memory, and that order with a sharding.

Laws: every shard of an array has its dims in the same order, without tiles. The order is None for row-major, here and in `ArraySpec`: an
      array with another order is stored as the transposed array.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, ClassVar

from weft._engine.util.errors import describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record


class _Auto(enum.Enum):
    """A layout chosen by the compiler: row-major for arguments; for results the one that needs no transpose."""

    AUTO = "AUTO"

    def __repr__(self) -> str:
        return "AUTO"

    __str__ = __repr__


@record
class Layout:
    """The dim order in memory, slowest dim first. `Layout.AUTO` leaves it to the compiler.

    >>> Layout(major_to_minor=(0, 1))
    Layout(major_to_minor=(0, 1), tiling=None, sub_byte_element_size_in_bits=0)
    """

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0
    if TYPE_CHECKING:
        AUTO: ClassVar[_Auto]

    def __post_init__(self):
        object.__setattr__(self, "major_to_minor", tuple(self.major_to_minor))


Layout.AUTO = _Auto.AUTO


def is_layout(x: Any) -> bool:
    """Return whether `x` is a layout or `Layout.AUTO`."""
    return isinstance(x, (Layout, _Auto))


@record
class Format:
    """A layout and a sharding; each may be None. It is accepted in place of a sharding.

    Raises TypeError for an invalid layout, ValueError for a concrete layout without a sharding.

    >>> wnp.zeros((2, 3)).format.layout.major_to_minor
    (0, 1)
    """

    layout: Any = None
    sharding: Any = None

    def __post_init__(self):
        if self.layout is not None and not is_layout(self.layout):
            raise TypeError(
                f"Format: layout must be a Layout, Layout.AUTO or None, got {self.layout!r}."
            )
        if isinstance(self.layout, Layout) and self.sharding is None:
            raise ValueError(
                f"Format: a concrete layout needs a concrete sharding, got {self.layout} alone. Pass a NamedSharding or a "
                "SingleDeviceSharding with it, or Layout.AUTO."
            )


def format_of(spec: Any) -> Format:
    """Return the format of arrays of an `ArraySpec`."""
    return Format(
        Layout(tuple(range(spec.aval.ndim)) if spec.order is None else spec.order, ()),
        spec.sharding,
    )


def order_of(layout: Any, ndim: int, what: str) -> tuple[int, ...] | None:
    """Return the dim order that a layout requests for an array of `ndim` dims; None if it is row-major or unspecified (AUTO, None).

    Raises ValueError if it does not fit, NotImplementedError for tiles. `what` is the API that requests it.
    """
    if not isinstance(layout, Layout):
        return None
    order, plain = layout.major_to_minor, tuple(range(ndim))
    if tuple(sorted(order)) != plain:
        raise ValueError(
            describe(
                what,
                f"the layout {layout} does not fit an array of {quantity(ndim, 'dim')}.",
                (),
                None,
                "Length of major_to_minor and the rank of the value should match: it names every dim once.",
                f"Use major_to_minor={plain}.",
            )
        )
    if layout.tiling or layout.sub_byte_element_size_in_bits:
        raise NotImplementedError(
            f"{what}: {layout} is not supported. Elements are stored whole and without tiles. Omit tiling and "
            "sub_byte_element_size_in_bits."
        )
    return None if order == plain else order
