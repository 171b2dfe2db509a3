"""Lazy tables of objects by name: primitives, and the scalar functions of floats that kernels compute.

In:   primitives, which their constructor registers; a record per scalar function, from the module of `ops.functions` that also contains
      the function's native formula.
Out:  `registry` and `functions`. The module of an object is loaded when its name is first looked up.
Laws: this module names no package of a higher layer. Packages call `announce` when they are imported. Passes read a function's
      record and never compare with lists of names. Looking up an operation of the Loops IR in `functions` returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft._engine.util.record import record

Loader = Callable[[str | None], Iterable[Any]]


class Registry(dict[str, Any]):
    """A table of objects by name. Looking up a missing name loads modules of the announced packages, first the modules that list the name.

    So rules and passes may look up any object, whether its module is loaded or not.
    """

    def __init__(self) -> None:
        self.loaders: list[Loader] = []

    def announce(self, load: Loader) -> None:
        """Add a loader of a package's modules: a generator function that loads a module before each of its yields.

        `load(name)` loads the modules that the package lists for `name`, `load(None)` all modules. See `util.lazy.loader`.
        """
        self.loaders.append(load)

    def __missing__(self, name: str) -> Any:
        for listed_name in (name, None):
            for load in self.loaders:
                for _ in load(listed_name):
                    if name in self:
                        return self[name]
        raise KeyError(name)

    def find(self, name: str) -> Any:
        """Return the object with this name, or None."""
        try:
            return self[name]
        except KeyError:
            return None


registry = Registry()
find = registry.find

# --- functions of kernels ---------------------------------------------------------------------------------------------

Range = tuple[float, float]
#: the cost from which a function is computed only once and called instead of inlined
_HEAVY = 20


@record(eq=False)
class ScalarFunction:
    """A scalar function of one or two floats.

    formula    its native code, `fn(f, *values)`: see `weft._engine.ops.functions`
    reference  the function on NumPy arrays
    op         the public function on arrays, if there is one
    cost       the cost of one element, in simple vector instructions
    test       whether the result is a bool
    brief      whether the short formula, for results that are rounded to a half type, accepts any f32; its results are not negative
    numpy      the names of the function in NumPy
    ulp        bounds of the error in f32 and f64, in units in the last place; zeros for exact functions
    widen      whether the reference is computed in wider floats than the arguments
    ranges     the ranges where errors are measured, in addition to floats of every magnitude
    points     points where errors are measured, with their neighbors
    """

    name: str
    arity: int
    formula: Callable[..., Any]
    reference: Callable[..., Any]
    op: Callable[..., Any] | None = None
    cost: int = _HEAVY
    test: bool = False
    widen: bool = True
    brief: bool = False
    numpy: tuple[str, ...] = ()
    ulp: tuple[float, float] = (0, 0)
    ranges: tuple[Range, ...] = ((-4, 4),)
    points: tuple[float, ...] = ()


class _ScalarFunctionTable(Registry):
    """The table of scalar functions by name. Looking up any other name returns None."""

    def __missing__(self, name: str) -> ScalarFunction | None:
        try:
            return super().__missing__(name)
        except KeyError:
            return None


functions = _ScalarFunctionTable()


class _Heavy:
    """The set of expensive functions. `op in HEAVY` loads the module of `op`."""

    def __contains__(self, op: str) -> bool:
        function = functions[op]
        return function is not None and function.cost >= _HEAVY


HEAVY = _Heavy()
