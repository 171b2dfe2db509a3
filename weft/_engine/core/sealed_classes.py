"""Classes whose instances only weft creates.

In:   a class with the metaclass `Sealed`, and the name of the public function that returns its instances in `_created_by`.
Out:  calling the class raises NotImplementedError and names that function; `Class.make(...)` creates an instance.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class Sealed(type):
    """The type of sealed classes.

    >>> class Token(metaclass=Sealed):
    ...     _created_by = "weft.lax.create_token"
    >>> Token()
    Traceback (most recent call last):
    NotImplementedError: Token: its constructor is not supported. Objects of this class are made by weft.lax.create_token.
    """

    _created_by: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{cls.__name__}: its constructor is not supported. Objects of this class are made by {cls._created_by}."
        )

    def make(cls: type[T], *args: Any, **kwargs: Any) -> T:
        """Create an instance, as calling an ordinary class does."""
        return type.__call__(cls, *args, **kwargs)
