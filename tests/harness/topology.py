"""A topology without a plugin: described devices, and a compiler that counts lines."""

from types import SimpleNamespace
from typing import Any, cast

from weft._engine.backends.pjrt.topology import TopologyBackend
from weft._engine.util.errors import DeviceRuntimeError

KIND = "Test chip"
MEMORY = 1 << 30


class Compiled:
    """The result of `Topology.compile`: facts about the text only."""

    def __init__(self, text: str) -> None:
        self.text = text

    def cost(self) -> dict[str, float]:
        return {"flops": 7.0, "bytes accessed": 8.0, "optimal_seconds": 1e-6}

    def memory(self) -> dict[str, int]:
        return {"argument_size_in_bytes": 3, "temp_size_in_bytes": self.text.count("\n")}

    def optimized_program(self) -> tuple[str, bytes]:
        return "text", self.text.encode()


class Topology:
    """Devices of several processes; programs with a sine are refused."""

    platform_version = "test 1.0"

    def __init__(self, count: int = 8, per_process: int = 4) -> None:
        self.library = SimpleNamespace(name="test", is_open=True)
        self.compiled: list[str] = []
        self.devices = [
            SimpleNamespace(
                id=i,
                process_index=i // per_process,
                kind=KIND,
                attributes={
                    "coords": [i % 2, i // 2, 0],
                    "core_on_chip": 0,
                    "device_memory_bytes_limit": MEMORY,
                },
                local_hardware_id=i,
                memories={"device": None},
                default_kind="device",
            )
            for i in range(count)
        ]

    def compile(self, text: str, options: bytes) -> Compiled:
        if "stablehlo.sine" in text:
            raise DeviceRuntimeError("INVALID_ARGUMENT: no sine\nsecond line")
        self.compiled.append(text)
        return Compiled(text)


def described_devices(count: int = 8, calls: Any = None) -> list[Any]:
    """Return devices of a topology; with `calls`, programs can be called on them."""
    return TopologyBackend("test", cast("Any", Topology(count)), calls).devices()
