"""What the processes of a program may tell each other in words of their own: keys and values, counters, barriers, and who lives.

In:  the connection of this process to the coordinator; one process that has called `initialize` has one, too.
Out: `Store`, whose methods have the names and the units (milliseconds) of the client of JAX's coordination service, which libraries call.
Law: the keys and barriers of programs are apart from those of weft. What fails raises a JaxRuntimeError that begins with the name of a
     gRPC status (NOT_FOUND, ALREADY_EXISTS, DEADLINE_EXCEEDED, INVALID_ARGUMENT), by which callers tell the cases apart.

Next to read: `coordinator`, which keeps the values.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.processes.client import Client
from weft._engine.util.errors import DeviceRuntimeError, ProcessFailureError

_OURS = "program/"


def _key(text: str) -> str:
    """The key under which the coordinator keeps a program's key. Slashes at the ends and doubled ones do not count."""
    return _OURS + "/".join(part for part in text.split("/") if part)


class Store:
    """Keys, counters and barriers that all processes of a program share.

    Keys are texts that may have parts, `a/b`; what is below a key is its directory.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Keep a text under a key. Raises JaxRuntimeError (ALREADY_EXISTS) if there is one and `allow_overwrite` is False."""
        self.key_value_set_bytes(key, value.encode(), allow_overwrite)

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        """Keep bytes under a key, as `key_value_set` does."""
        if not self._client.put(_key(key), value, replaces=allow_overwrite):
            raise DeviceRuntimeError(
                f"ALREADY_EXISTS: key_value_set: the key {key!r} has a value.\n"
                "  Give allow_overwrite=True to replace it."
            )

    def key_value_try_get(self, key: str) -> str:
        """The text under a key now. Raises JaxRuntimeError (NOT_FOUND) if there is none."""
        return self.key_value_try_get_bytes(key).decode()

    def key_value_try_get_bytes(self, key: str) -> bytes:
        """The bytes under a key now, as `key_value_try_get`."""
        found = self._client.find(_key(key))
        if found is None:
            raise DeviceRuntimeError(
                f"NOT_FOUND: key_value_try_get: no process has put the key {key!r}."
            )
        return found

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """The text under a key, waited for. Raises JaxRuntimeError (DEADLINE_EXCEEDED) if no process puts it in time."""
        return self.blocking_key_value_get_bytes(key, timeout_in_ms).decode()

    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        """The bytes under a key, waited for as by `blocking_key_value_get`."""
        try:
            return self._client.get(_key(key), max(0.0, timeout_in_ms / 1000))
        except ProcessFailureError as error:
            if self._client.failure is not None:
                raise
            raise DeviceRuntimeError(
                f"DEADLINE_EXCEEDED: blocking_key_value_get: no process put the key {key!r} within "
                f"{timeout_in_ms} ms."
            ) from error

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """The keys below a key, with their texts, in order."""
        return [(name, value.decode()) for name, value in self.key_value_dir_get_bytes(key)]

    def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """The keys below a key, with their bytes, in order."""
        below = _key(key).rstrip("/") + "/"
        return [(name.removeprefix(_OURS), value) for name, value in self._client.items(below)]

    def key_value_delete(self, key: str) -> None:
        """Forget a key and all below it, if there are any."""
        self._client.delete(_key(key).rstrip("/"))

    def key_value_increment(self, key: str, increment: int) -> int:
        """Add to the whole number under a key, which begins at 0; its new value. Two processes that add at once both count. Raises
        JaxRuntimeError (INVALID_ARGUMENT) if the key has another text."""
        try:
            return self._client.add(_key(key), increment)
        except ValueError as error:
            raise DeviceRuntimeError(
                f"INVALID_ARGUMENT: key_value_increment: the key {key!r} has a value that is no whole number."
            ) from error

    def wait_at_barrier(
        self, barrier_id: str, timeout_in_ms: int, process_ids: Sequence[int] | None = None
    ) -> None:
        """Wait until all processes, or those of `process_ids`, have come to a barrier. It can be used again.

        Raises JaxRuntimeError: DEADLINE_EXCEEDED if one does not come in time, INVALID_ARGUMENT for processes that there are not.
        """
        try:
            self._client.barrier(_OURS + barrier_id, timeout_in_ms / 1000, process_ids)
        except ValueError as error:
            raise DeviceRuntimeError(f"INVALID_ARGUMENT: wait_at_barrier: {error}") from error
        except ProcessFailureError as error:
            if self._client.failure is not None:
                raise
            raise DeviceRuntimeError(f"DEADLINE_EXCEEDED: wait_at_barrier: {error}") from error

    def get_live_nodes(self, process_ids: Sequence[int]) -> dict[int, int]:
        """Those of the processes that live, once all of them have asked: a number for each, which another run of it would not have.

        Raises JaxRuntimeError (INVALID_ARGUMENT) if this process is not among them.
        """
        if self._client.rank not in process_ids:
            raise DeviceRuntimeError(
                f"INVALID_ARGUMENT: get_live_nodes: process {self._client.rank} asks for the processes "
                f"{list(process_ids)}, and is not one of them."
            )
        return self._client.living(process_ids)
