"""Upward hooks: the only places where a package of the engine calls or reads a package of a higher layer.

A `Hook` contains the module and the name of the function that implements it. Tables are filled by packages of higher layers and by
user programs.
Laws: no module sets functions or tables of another module when it is imported; a test searches for such statements. A hook with a
      default does not import its module: the default is used until another import has loaded the module.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from typing import Any


class Hook:
    """A call of the function `name` in `module`, a module of a higher layer. Without a default, the first call imports the module.

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
        """Return the function, and cache it if its module is loaded; return the default if the module is not loaded."""
        if self.default is None:
            importlib.import_module(self.module)
        function = getattr(sys.modules.get(self.module), self.name, None)
        if function is None and self.default is not None:
            return self.default
        if function is None:
            raise ImportError(
                f"{self.module} is only partially imported: it has no {self.name} yet."
            )
        self._function = function
        return function


# ---- functions

#: compute a primitive on concrete values: (primitive, args, params) -> results
evaluate = Hook("weft._engine.api.calls.evaluator", "evaluate_op")
#: convert a symbolic zero to an array of zeros
instantiate_zero = Hook("weft._engine.ops.families", "instantiate")
#: return whether a program is being traced
in_program = Hook("weft._engine.core.stage", "is_tracing", lambda: False)
#: create the context for signal handlers that interrupt a trace
handler_context = Hook("weft._engine.core.trace", "UntracedContext", contextlib.nullcontext)
#: return the kind of the devices on which programs run by default
home_device = Hook("weft._engine.backends.base", "default_abstract_device", lambda: None)
#: return the vector unit of the compilation target, with the matrix units that the processor has
vector_unit = Hook("weft._engine.codegen.ir.gemm_types", "machine")
#: return the module that finds PJRT plugins
load_plugins = Hook("weft._engine.backends", "load_plugins")
#: return a text with the largest live arrays, for error messages
describe_memory = Hook("weft._engine.runtime.live_arrays", "describe_largest")
#: convert a function of arrays to a function of sparse arrays
sparsify = Hook("weft.experimental.sparse.transform", "sparsify")
#: return the HTML page of a profile
profile_page = Hook("weft.tools.profile.page", "profile_page")

#: return a message with the public names that the calling program uses: names of JAX under the shim
user_spelling = Hook("weft.compat.spelling", "user_spelling")
#: return an object as HTML for notebooks, or None
notebook_html = Hook("weft._engine.debug.notebook", "notebook_html")
#: return a question with the place of a name that a module does not have, or "": (module, name) -> text
suggest_name = Hook("weft.compat.spelling", "suggest_name")

# ---- tables

#: types that an array may contain in place of a buffer: None, and the pending or failed results of queued programs
PENDING_BUFFER_TYPES: set[type] = {type(None)}
#: user-defined class of values that consist of arrays -> function that returns the type of a value
hi_types: dict[type, Callable[[Any], Any]] = {}
#: class of a library -> function that converts a value to an array
array_makers: dict[type, Callable[[Any], Any]] = {}
#: class of a library -> function that returns the array type of a value
type_makers: dict[type, Callable[[Any], Any]] = {}
#: callbacks (jitted function, call, `TracedProgram`), called after a jitted function was traced
after_tracing: list[Callable[[Any, Any, Any], None]] = []
#: callbacks (jitted function, call, flat results), called after each call on values
after_calls: list[Callable[[Any, Any, Any], None]] = []
#: callbacks (backend), called before a backend compiles a program; an exception prevents the compilation
before_compilation: list[Callable[[Any], None]] = []
#: callbacks (executable), called after an executable was compiled or loaded
after_compilation: list[Callable[[Any], None]] = []
