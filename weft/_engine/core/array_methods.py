"""The base of arrays and tracers, to which `weft.numpy` attaches operators and methods; the stub beside this file declares them."""


class ArrayMethods:
    """Values with the operators and methods of NumPy's arrays."""

    __slots__ = ()
