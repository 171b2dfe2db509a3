"""Upward hooks: the only places where a package of the engine calls or reads a package above it.

A `Hook` names the function of a higher package that serves it. A table is filled by higher packages and by programs of users.
Laws: no module sets a function or a table of another module when it is imported; a test searches for such statements. A hook with
      a default does not load the package that serves it: the default serves until some other import does.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from typing import Any


class Hook:
    """The function `name` of `module`, which stands above the callers. Without a default, the first call imports the module.

    >>> Hook("no.such.module", "answer", lambda: 42)()
    42
    """

    __slots__ = ("module", "name", "default", "_function")

    def __init__(self, module: str, name: str, default: Callable[..., Any] | None = None):
        self.module, self.name, self.default = module, name, default
        self._function: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        return (self._function or self._find())(*args)

    def _find(self) -> Callable[..., Any]:
        """Return the function that serves now, and remember the one of the higher package."""
        if self.default is None:
            importlib.import_module(self.module)
        function = getattr(sys.modules.get(self.module), self.name, None)
        if function is None and self.default is not None:
            return self.default
        if function is None:
            raise ImportError(f"{self.module} is imported only in part: it has no {self.name} yet.")
        self._function = function
        return function


# ---- functions

#: compute a primitive on concrete values: (primitive, args, params) -> results
evaluate = Hook("weft._engine.api.calls.evaluator", "evaluate_op")
#: make a symbolic zero an array of zeros
instantiate_zero = Hook("weft._engine.ops.families", "instantiate")
#: return whether a program is being traced
in_program = Hook("weft._engine.core.stage", "is_tracing", lambda: False)
#: make the context of signal handlers that interrupt a trace
handler_context = Hook("weft._engine.core.trace", "OwnContext", contextlib.nullcontext)
#: return the kind of the devices that programs run on here
home_device = Hook("weft._engine.backends.base", "home_device", lambda: None)
#: return the module that finds PJRT plugins
load_plugins = Hook("weft._engine.backends", "load_plugins")
#: describe the largest live arrays, for errors
describe_memory = Hook("weft._engine.runtime.live", "describe_largest")
#: make a function of arrays one of sparse arrays
sparsify = Hook("weft.experimental.sparse.transform", "sparsify")

# ---- tables

#: types of what arrays hold instead of a buffer: nothing, or what a queued program will write, or failed to write
PENDING_BUFFER_TYPES: set[type] = {type(None)}
#: class of values of users that consist of arrays -> the function that returns the type of such a value
hi_types: dict[type, Callable[[Any], Any]] = {}
#: class of a library's values -> the function that makes an array of one
array_makers: dict[type, Callable[[Any], Any]] = {}
#: class of a library's values -> the function that returns the type of the array that one stands for
type_makers: dict[type, Callable[[Any], Any]] = {}
#: functions of a jitted function, a call and its `TracedProgram`, called after a jitted function was traced
after_tracing: list[Callable[[Any, Any, Any], None]] = []
#: functions of a backend, called before it compiles a program; an exception forbids the program
before_compilation: list[Callable[[Any], None]] = []
#: functions of an executable, called after it was made or loaded
after_compilation: list[Callable[[Any], None]] = []
