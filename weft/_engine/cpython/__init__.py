"""Facts about CPython that the language does not promise: memory of objects, reference counts, bytecode.

`references` counts references, `code_objects` reads and changes code objects, `layouts` knows where objects have their fields.
Laws: each fact is checked on live objects at first use. Where a check fails, or `WEFT_CPYTHON_INTERNALS=0` is set, plain Python
does the same more slowly: calls take the Python path, donated memory is copied, and sources are read instead of bytecode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

_is_allowed = True


def forbid() -> None:
    """Let all checks fail from now on. Native code that is in use stays."""
    global _is_allowed
    _is_allowed = False


def self_check(check: Callable[[], bool]) -> Callable[[], bool]:
    """Decorate a check that runs once, and fails where facts about CPython may not be used."""
    run = functools.cache(check)

    @functools.wraps(check)
    def is_passed() -> bool:
        return _is_allowed and run()

    return is_passed
