"""The base class of arrays and tracers. `weft.numpy` attaches operators and methods to it; `array_methods.pyi` declares them."""


class ArrayMethods:
    """A value with the operators and methods of NumPy arrays."""

    __slots__ = ()
