"""Keys and values, counters, barriers and liveness queries for the user's program.

In:  the connection of this process to the coordinator; a single process that has called `initialize` has one, too.
Out: `KeyValueStore`, whose methods have the names and the units (milliseconds) of the client of JAX's coordination service, which libraries
      call.
Law: the keys and barriers of programs are separate from weft's own. Errors are JaxRuntimeErrors whose message begins with the name of a
     gRPC status (NOT_FOUND, ALREADY_EXISTS, DEADLINE_EXCEEDED, INVALID_ARGUMENT); callers distinguish them by it.

Next to read: `coordinator`, which stores the values.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.processes.client import Client
from weft._engine.util.errors import DeviceRuntimeError, ProcessFailureError

_PROGRAM_PREFIX = "program/"


def _key(text: str) -> str:
    """Return the coordinator's name for a program's key. Leading, trailing and repeated slashes are ignored."""
    return _PROGRAM_PREFIX + "/".join(part for part in text.split("/") if part)


class KeyValueStore:
    """Keys, counters and barriers that all processes of a program share.

    A key may have parts, `a/b`; the keys below a key form its directory.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Store a text under a key. Raises JaxRuntimeError (ALREADY_EXISTS) if the key has a value and `allow_overwrite` is False."""
        self.key_value_set_bytes(key, value.encode(), allow_overwrite)

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        """Store bytes under a key, like `key_value_set`."""
        if not self._client.put(_key(key), value, replaces=allow_overwrite):
            raise DeviceRuntimeError(
                f"ALREADY_EXISTS: key_value_set: the key {key!r} has a value.\n"
                "  Pass allow_overwrite=True to replace it."
            )

    def key_value_try_get(self, key: str) -> str:
        """Return the current text of a key. Raises JaxRuntimeError (NOT_FOUND) if it has none."""
        return self.key_value_try_get_bytes(key).decode()

    def key_value_try_get_bytes(self, key: str) -> bytes:
        """Return the current bytes of a key, like `key_value_try_get`."""
        value = self._client.find(_key(key))
        if value is None:
            raise DeviceRuntimeError(
                f"NOT_FOUND: key_value_try_get: no process has put the key {key!r}."
            )
        return value

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Wait for the text of a key and return it. Raises JaxRuntimeError (DEADLINE_EXCEEDED) if no process puts it in time."""
        return self.blocking_key_value_get_bytes(key, timeout_in_ms).decode()

    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        """Wait for the bytes of a key and return them, like `blocking_key_value_get`."""
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
        """Return the keys below a key, in order, with their texts."""
        return [(name, value.decode()) for name, value in self.key_value_dir_get_bytes(key)]

    def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """Return the keys below a key, in order, with their bytes."""
        below = _key(key).rstrip("/") + "/"
        return [
            (name.removeprefix(_PROGRAM_PREFIX), value) for name, value in self._client.items(below)
        ]

    def key_value_delete(self, key: str) -> None:
        """Delete a key and all keys below it, if there are any."""
        self._client.delete(_key(key).rstrip("/"))

    def key_value_increment(self, key: str, increment: int) -> int:
        """Add to the whole number under a key (initially 0) and return its new value. Concurrent additions all count. Raises
        JaxRuntimeError (INVALID_ARGUMENT) if the value of the key is not a whole number."""
        try:
            return self._client.add(_key(key), increment)
        except ValueError as error:
            raise DeviceRuntimeError(
                f"INVALID_ARGUMENT: key_value_increment: the value of the key {key!r} is not a whole number."
            ) from error

    def wait_at_barrier(
        self, barrier_id: str, timeout_in_ms: int, process_ids: Sequence[int] | None = None
    ) -> None:
        """Wait until all processes, or only `process_ids`, have arrived at a barrier. Its name can be reused.

        Raises JaxRuntimeError: DEADLINE_EXCEEDED if one does not arrive in time, INVALID_ARGUMENT for processes that do not exist.
        """
        try:
            self._client.barrier(_PROGRAM_PREFIX + barrier_id, timeout_in_ms / 1000, process_ids)
        except ValueError as error:
            raise DeviceRuntimeError(f"INVALID_ARGUMENT: wait_at_barrier: {error}") from error
        except ProcessFailureError as error:
            if self._client.failure is not None:
                raise
            raise DeviceRuntimeError(f"DEADLINE_EXCEEDED: wait_at_barrier: {error}") from error

    def get_live_nodes(self, process_ids: Sequence[int]) -> dict[int, int]:
        """Return the live processes among `process_ids`, each with a number unique to its run. Waits until all of them have called this.

        Raises JaxRuntimeError (INVALID_ARGUMENT) if this process is not one of `process_ids`.
        """
        if self._client.rank not in process_ids:
            raise DeviceRuntimeError(
                f"INVALID_ARGUMENT: get_live_nodes: process {self._client.rank} requests the processes "
                f"{list(process_ids)}, and is not one of them."
            )
        return self._client.find_live(process_ids)
