"""The interface of managers that save arrays while a program goes on."""

from __future__ import annotations

import abc
from typing import Any


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """What a manager of asynchronous checkpoints offers; libraries derive from it, and ask whether a manager is one.

    >>> issubclass(GlobalAsyncCheckpointManagerBase, abc.ABC)
    True
    """

    @abc.abstractmethod
    def check_for_errors(self) -> None:
        """Raise what went wrong in a save that was started before."""

    @abc.abstractmethod
    def wait_until_finished(self) -> None:
        """Return when every save that was started is done."""

    @abc.abstractmethod
    def serialize(self, arrays: Any, tensorstore_specs: Any, *, on_commit_callback: Any, transaction: Any = None,
                  concurrent_gb: int = 32) -> None:
        """Begin to save arrays to stores."""

    @abc.abstractmethod
    def deserialize(self, shardings: Any, tensorstore_specs: Any, global_shapes: Any = None, dtypes: Any = None,
                    concurrent_gb: int = 32) -> Any:
        """Read arrays back, laid out by `shardings`."""
