"""What packages above state and others look up by name: primitives, and the functions of floats that kernels know.

In:   primitives, registered as they are made; records of functions, stated one each in a module of `ops.functions` beside the
      function's native formula.
Out:  `registry` and `functions`; a module is loaded when something in it is first asked for.
Laws: nothing here names a package above: those that state something announce how to load it, as they are imported. Passes ask a
      function's record, never a list of names. The operations of Loops itself are in `functions`, too, as None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft._engine.util.record import record

Loader = Callable[[str | None], Iterable[Any]]


class Registry(dict[str, Any]):
    """Objects by their names. Where one is not there, modules of the packages that announced themselves are loaded, first those that
    list the name: rules and passes look up any of them by its name, and need not know which modules are loaded."""

    def __init__(self) -> None:
        self.loaders: list[Loader] = []

    def announce(self, load: Loader) -> None:
        """Tell how to load the modules of a package: `load(name)` goes through those that it lists for `name`, `load(None)` through
        all, and loads one before it yields. See `util.lazy.loader`."""
        self.loaders.append(load)

    def __missing__(self, name: str) -> Any:
        for asked in (name, None):
            for load in self.loaders:
                for _ in load(asked):
                    if name in self:
                        return self[name]
        raise KeyError(name)

    def find(self, name: str) -> Any:
        """The object called `name`, or None."""
        try:
            return self[name]
        except KeyError:
            return None


registry = Registry()
find = registry.find

# --- functions of kernels ---------------------------------------------------------------------------------------------

Range = tuple[float, float]
#: costs from which on a function is worth computing once, or calling instead of repeating its instructions
_HEAVY = 20


@record(eq=False)
class Function:
    """A function of one or two floats.

    formula    its native code, `fn(f, *values)`: see `weft._engine.ops.functions`
    reference  its meaning on NumPy arrays
    op         the public function of values, where programs have it
    cost       of one element, in simple vector instructions
    test       whether the result is a bool
    brief      whether the short formula, for results that are rounded to a half type, takes any f32; its results are not negative
    numpy      the names that NumPy has for it
    ulp        bounds of the error in f32 and f64, in units of the last place; zeros for what is exact
    widen      whether the reference is asked for wider floats than the arguments are
    ranges     where errors are measured, besides floats of every size; `points` are measured with their neighbours
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


class _Functions(Registry):
    """Functions by their names; None for operations that are not one, known or unknown."""

    def __missing__(self, name: str) -> Function | None:
        try:
            return super().__missing__(name)
        except KeyError:
            return None


functions = _Functions()


class _Heavy:
    """The functions of many instructions; `op in HEAVY` loads the module of `op`."""

    def __contains__(self, op: str) -> bool:
        function = functions[op]
        return function is not None and function.cost >= _HEAVY


HEAVY = _Heavy()
