"""A base class of context managers whose instances are reentrant and can decorate functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class ContextBlock(ContextDecorator, Generic[T]):
    """A context manager whose subclass states the block as a generator, `_block`, that yields once.

    >>> class heading(ContextBlock[str]):
    ...     def __init__(self, text): self.text = text
    ...     def _block(self):
    ...         yield self.text.upper()
    >>> with heading("a") as text: print(text)
    A
    """

    _entered: list[AbstractContextManager[T]] | None = None

    def _block(self) -> Iterator[T]:
        raise NotImplementedError(
            f"{type(self).__name__}: a subclass of ContextBlock must define _block."
        )

    def __enter__(self) -> T:
        entered = contextmanager(type(self)._block)(self)
        value = entered.__enter__()
        self._entered = [*(self._entered or ()), entered]
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._entered
        return self._entered.pop().__exit__(kind, error, traceback)
