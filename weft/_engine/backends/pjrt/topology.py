"""Backends of described devices, which need not be attached: programs are compiled for them, not run.

In:   a topology's name and options for a plugin, and local programs.
Out:  devices for meshes and shardings; the costs, memory and optimized text of a program.
Laws: arrays have no values: reading one raises, and so does a call unless `calls` is set.
      This process represents all processes of the topology, so that all devices are addressable.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import Device, LoadedLocalProgram, LocalProgram, Stage
from weft._engine.backends.pjrt import plugins
from weft._engine.backends.pjrt.backend import PjrtDevice, PluginBackend
from weft._engine.backends.pjrt.client import CompiledProgram, PjrtTopology
from weft._engine.backends.pjrt.compile_options import encode_compile_options
from weft._engine.backends.pjrt.program import ReportedProgram, aliases_of
from weft._engine.hlo.replica_program import donations, replica_program_text
from weft._engine.util.config import config

#: settings with which libtpu describes chips on a machine without TPUs; the user's values have precedence
_TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


class DescribedDevice(PjrtDevice):
    """A device of a topology."""

    __slots__ = ()

    @property
    def is_addressable(self) -> bool:
        """True: this process represents all processes of the topology."""
        return True


class TopologyBackend(PluginBackend):
    """A backend of the devices of a topology.

    With `calls`, calls of programs return arrays without values, and each call invokes `calls(program)`.
    Programs are then compiled only when a report needs it, or when `calls` does.
    """

    runtime_type = "pjrt"
    has_values = False

    def __init__(
        self,
        platform: str,
        topology: PjrtTopology,
        calls: Callable[[TopologyProgram], None] | None = None,
    ) -> None:
        super().__init__()
        self.platform = platform
        self.plugin_name = self.lowering_platform = topology.library.name
        self.platform_version = topology.platform_version
        self.topology = topology
        self.calls = calls

    def _make_devices(self) -> Iterator[Device]:
        for description in self.topology.devices:
            device = DescribedDevice(description, self)
            if self.calls is not None:
                device.process_index = 0  # only this process makes calls
            yield device

    def process_index(self) -> int:
        return 0

    def process_count(self) -> int:
        return 1

    def serialize_topology(self) -> bytes:
        return self.topology.serialize()

    # ---- memory
    def _no_value(self, *args: Any, **options: Any) -> Any:
        return _NO_VALUE

    put = allocate = put_blocks = shard = move = _no_value

    def get(self, buffer: Any, spec: ArraySpec) -> NoReturn:
        raise NoValueError(
            f"The array {spec.aval.str_short()} has no value: it is on {self.devices()[0].device_kind} "
            "devices that are described, not attached. Programs for them can be compiled, not run."
        )

    # ---- programs
    def compile(self, program: LocalProgram, lowered: None, stage: Stage) -> LoadedLocalProgram:
        topology_program = TopologyProgram(self, program, stage)
        if self.calls is None:
            _ = topology_program.compiled
        return topology_program


class NoValueError(RuntimeError):
    """A read of an array on devices that are not attached."""


#: placeholder for memory
_NO_VALUE = object()


class TopologyProgram(ReportedProgram):
    """A program that is compiled and cannot run."""

    def __init__(self, backend: TopologyBackend, program: LocalProgram, stage: Stage) -> None:
        self.backend = backend
        self.aliases = aliases_of(donations(program).items())
        self._program = program
        self._options = dict(config.compiler_options)
        self._stage = stage

    @functools.cached_property
    def text_to_compile(self) -> str:
        """The local program in the form that the plugin compiles."""
        platform = self.backend.lowering_platform
        return self._stage("write StableHLO", replica_program_text, self._program, None, platform)

    @functools.cached_property
    def compiled(self) -> CompiledProgram:  # type: ignore[override]
        """The program that the plugin compiled."""
        options = encode_compile_options(self._program.device_ids, self._options)
        compile = self.backend.topology.compile
        return self._stage("compile by the plugin", compile, self.text_to_compile, options)

    def run(self, buffers: list[Any]) -> list[Any]:
        if self.backend.calls is None:
            raise RuntimeError(
                f"{self._program.name} cannot run: its devices "
                f"({len(self._program.device_ids)} x {self.backend.devices()[0].device_kind}) are "
                "described, not attached. It is compiled: cost_analysis(), memory_analysis() and "
                "as_text() describe it."
            )
        self.backend.calls(self)
        return [_NO_VALUE] * len(self._program.outs)


def describe(
    platform: str,
    name: str | bytes,
    options: dict[str, Any] | None,
    calls: Callable[[TopologyProgram], None] | None = None,
) -> TopologyBackend:
    """Return a backend of the devices that a platform's plugin describes by `name` and `options`.

    Without options, `name` is the result of `serialize_topology`.

    Raises RuntimeError if the plugin is not installed, NotImplementedError if it cannot describe devices.
    """
    plugin = plugins.find_plugin(platform)
    if plugin is None:
        what = f"{name!r}" if isinstance(name, str) else "A serialized topology"
        raise RuntimeError(
            f"{what} needs the PJRT plugin of the platform {platform!r}, which is not installed. "
            f"{plugins.install_advice(platform)}"
        )
    if plugin.platform == "tpu":
        for variable, value in _TPU_ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
    try:
        topology = PjrtTopology(plugins.load_library(plugin), name, options)
    except RuntimeError as error:
        if str(error).startswith("UNIMPLEMENTED"):
            raise NotImplementedError(str(error)) from None
        raise
    return TopologyBackend(plugin.device_platform, topology, calls)


def platform_of(serialized: bytes) -> str:
    """Return the platform of a serialized topology; raise ValueError if the bytes have none.

    The bytes are a PjRtTopologyDescriptionProto: platform_id = 1, a number; platform_name = 2.
    """
    match = re.match(rb"\x08[\x80-\xff]*[\x00-\x7f]\x12([\x01-\x7f])([a-z]\w*)", serialized)
    if match is None or len(match[2]) < match[1][0]:
        raise ValueError(
            f"TopologyDescription.deserialize: {serialized!r:.80} is not a serialized topology."
        )
    return match[2][: match[1][0]].decode()
