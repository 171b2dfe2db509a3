"""What packages above state and others ask for by name: primitives, and the functions of floats that kernels know.

In:   primitives, registered as they are made; records of functions, stated one each in a module of `ops.functions` beside the
      function's native formula.
Out:  `registry` and `functions`; a module is loaded when something in it is first asked for.
Laws: passes ask a function's record, never a list of names. The operations of Loops itself are in `functions`, too, as None.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from weft.util.record import record


class Registry(dict[str, Any]):
    """Objects by their names. Where one is not there, the modules of `packages` are loaded, first the modules in whose lists
    (`STATED_BY` of a package) it is: rules and passes ask for any by its name, and need not know who has loaded what."""

    def __init__(self, *packages: str):
        self.packages = packages    # named, not imported: they stand above, and register what they hold as they load

    def __missing__(self, name: str) -> Any:
        packages = [importlib.import_module(package) for package in self.packages]
        listed = [f"{package.__name__}.{package.STATED_BY[name]}" for package in packages if name in getattr(package, "STATED_BY", ())]
        every = (found.name for package in packages for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."))
        for module in (*listed, *every):
            importlib.import_module(module)
            if name in self:
                return self[name]
        raise KeyError(name)

    def find(self, name: str) -> Any:
        """The object called `name`, or None."""
        try:
            return self[name]
        except KeyError:
            return None


registry = Registry("weft.ops", "weft.control", "weft.ops.functions")
find = registry.find

# --- functions of kernels ---------------------------------------------------------------------------------------------

Range = tuple[float, float]
#: costs from which on a function is worth computing once, or calling instead of repeating its instructions
_HEAVY = 20


@record(eq=False)
class Function:
    """A function of one or two floats.

    formula    its native code, `fn(f, *values)`: see `weft.ops.functions`
    reference  its meaning on NumPy arrays
    op         the public function of values, where programs have it
    cost       of one element, in simple vector instructions
    test       whether the result is a bool
    brief      whether the short formula, for results that are rounded to a half type, takes any f32; its results are not negative
    numpy      the names that NumPy has for it
    ulp        bounds of the error in f32 and f64, in units of the last place; zeros for what is exact
    widen      whether the reference is asked for wider floats than the arguments are
    ranges     where errors are measured, beside floats of every size; `points` are measured with their neighbours
    """
    name: str
    arity: int
    formula: Callable
    reference: Callable
    op: Callable | None = None
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


functions: dict[str, Any] = _Functions("weft.ops.functions")


class _Heavy:
    """The functions of many instructions; `op in HEAVY` loads the module of `op`."""

    def __contains__(self, op: str) -> bool:
        function = functions[op]
        return function is not None and function.cost >= _HEAVY


HEAVY = _Heavy()
