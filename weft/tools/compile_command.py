"""`weft compile PROGRAM --target NAME`: report the compilation of a program for devices that are
not attached.

In:   a program and its arguments, and a target: `v5p:8x8x8`, `h100:8`.
Out:  the program's own output and, for each function that it jits, the result of the device's
      plugin: memory, costs, the time to compile, and weft's collectives.
How:  the default devices are the target's. A function is compiled at its first call, or at the end
      if `lower().compile()` made it. Arrays have no values: the program ends when it reads one.
      Weft's own functions, such as `wnp.sin` outside of a jitted function, are not compiled.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from weft._engine import hooks
from weft._engine.backends import base, targets
from weft._engine.backends.pjrt.topology import NoValueError, TopologyProgram, describe
from weft._engine.util.config import config
from weft._engine.util.record import field, record
from weft._engine.util.source import is_internal
from weft.tools.report import collectives_of
from weft.tools.run import run_program, show

#: settings of plugins that suppress their logs
QUIET_PLUGINS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_LOG_DIR": "disabled",
}


@record(frozen=False)
class CollectiveTotal:
    """The collectives of one kind: their runs in a call, and the bytes that a device sends in them.

    Both are per iteration if the collectives are in a loop of unknown length.
    """

    kind: str
    per_iteration: bool
    count: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        each = " per iteration" if self.per_iteration else ""
        return f"{self.count} x {self.kind} {self.bytes:,} B{each}"


@record(frozen=False)
class ProgramReport:
    """The report on one compiled program. `memory` and `cost` are per device.

    If the plugin refused the program, `error` is the reason, and `memory` and `cost` are empty.
    """

    name: str
    device_kind: str
    num_devices: int
    memory_limit: int | None
    collectives: list[CollectiveTotal]
    lines: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    cost_source: str = "plugin"
    error: str = ""
    weft_seconds: float = 0.0
    plugin_seconds: float = 0.0

    def __str__(self) -> str:
        facts = [
            ("program", f"{self.lines:,} lines of StableHLO for each device"),
            ("collectives", ", ".join(map(str, self.collectives)) or "none"),
            *([("refused", self.error)] if self.error else self._results()),
            (
                "seconds",
                f"{self.weft_seconds:.2f} of weft, {self.plugin_seconds:.2f} of the plugin",
            ),
        ]
        fact_lines = "\n".join(f"  {label:12}{text}" for label, text in facts)
        return f"{self.name} for {self.num_devices} x {self.device_kind}\n{fact_lines}\n"

    def _results(self) -> list[tuple[str, str]]:
        size = lambda name: f"{self.memory.get(f'{name}_size_in_bytes', 0):,} B"
        alias = self.memory.get("alias_size_in_bytes", 0)
        limit = f" of {self.memory_limit:,} B" if self.memory_limit else ""
        memory = [
            f"arguments {size('argument')}",
            f"results {size('output')}" + (f" ({size('alias')} in arguments)" if alias else ""),
            f"temporaries {size('temp')}",
            f"peak {self.memory.get('peak_memory_in_bytes', 0):,} B{limit}",
        ]
        cost = [
            f"{self.cost.get('flops', 0):.4g} flops",
            f"{self.cost.get('bytes accessed', 0):.4g} B accessed",
        ]
        if self.cost.get("optimal_seconds", 0) > 0:  # negative where libtpu has no estimate
            cost.append(f"{1e6 * self.cost['optimal_seconds']:.4g} us at best")
        source = "" if self.cost_source == "plugin" else " (weft's count)"
        return [("memory", ", ".join(memory)), ("cost", ", ".join(cost) + source)]


def compile_program(
    program: str,
    arguments: Sequence[str],
    target: str,
    json_file: str | None = None,
    *,
    as_module: bool = False,
) -> int:
    """Run `program` for a target and print its reports, also into `json_file` as JSON.

    Return the program's exit status, 1 if the plugin refused something, 2 for a target that is
    unknown or whose plugin is not installed.
    """
    for variable, value in QUIET_PLUGINS.items():
        os.environ.setdefault(variable, value)
    compilation = TargetCompilation()
    try:
        compilation.use_target(target)
    except (ValueError, RuntimeError) as error:
        print(f"weft compile: {error}", file=sys.stderr)
        return 2
    try:
        status = run_program(
            program, arguments, as_module=as_module, show_error=compilation.show_error
        )
    finally:
        compilation.finish()
        if json_file is not None:
            with open(json_file, "w", encoding="utf-8") as file:
                json.dump(compilation.as_data(), file, indent=2)
    return status or int(any(report.error for report in compilation.reports))


class TargetCompilation:
    """The programs of one run for a target, and their reports."""

    def __init__(self) -> None:
        self.reports: list[ProgramReport] = []
        self.target = self.plugin_version = self.stopped_at = ""
        self._executables: dict[Any, Any] = {}  # of loaded programs, in order of compilation
        self._called: set[Any] = set()

    def use_target(self, name: str) -> None:
        """Make the devices of a target the default ones.

        Raise ValueError for an unknown target, RuntimeError if its plugin is not installed.
        """
        target = targets.parse_target(name)
        backend = describe(target.platform, target.topology, target.options, self.on_call)
        self.target, self.plugin_version = name, backend.platform_version
        base.register(name, lambda: backend)
        base.set_alias(backend, (name, target.platform, backend.platform))
        config.platforms, config.backend = None, name

        hooks.after_compilation.append(self.on_executable)

    def on_executable(self, executable: Any) -> None:
        """Record an executable of weft."""
        if isinstance(executable.loaded, TopologyProgram):
            self._executables[executable.loaded] = executable

    def on_call(self, loaded: Any) -> None:
        """Compile and report a program at its first call, unless it is weft's own."""
        if loaded not in self._called:
            self._called.add(loaded)
            if loaded.module and loaded.module.partition(".")[0] not in ("weft", "jax"):
                self._report(loaded)

    def finish(self) -> None:
        """Report the programs of `lower().compile()` that were not called, and print the count of
        all programs."""
        for loaded in list(self._executables):
            if loaded.module and loaded not in self._called:
                self._report(loaded)
        count, refused = len(self.reports), sum(bool(report.error) for report in self.reports)
        noun = "program was" if count == 1 else "programs were"
        print(f"{count} {noun} compiled" + (f", {refused} refused." if refused else "."))

    def _report(self, loaded: Any) -> None:
        report = report_of(self._executables[loaded])
        self.reports.append(report)
        print(report, flush=True)

    def as_data(self) -> dict[str, Any]:
        """Return all reports as plain data."""
        programs = [
            {**_fields(report), "collectives": [*map(_fields, report.collectives)]}
            for report in self.reports
        ]
        return {
            "target": self.target,
            "plugin": self.plugin_version,
            "stopped_at": self.stopped_at,
            "programs": programs,
        }

    def show_error(self, error: BaseException, trace: TracebackType | None) -> int:
        """Print where the program stopped if it read a value; otherwise print the traceback."""
        if not isinstance(error, NoValueError):
            return show(error, trace)
        frames = [frame for frame in traceback.extract_tb(trace) if not is_internal(frame.filename)]
        file, line = frames[-1].filename, frames[-1].lineno or 0
        self.stopped_at = f"{file}:{line}"
        print(
            f"Stopped at {self.stopped_at}, which reads the value of an array:\n"
            f"    {linecache.getline(file, line).strip()}\n"
            "Arrays of a target have no values. Functions called after this line are not compiled.\n",
            flush=True,
        )
        return 0


def _fields(report: ProgramReport | CollectiveTotal) -> dict[str, Any]:
    return {name: getattr(report, name) for name in type(report).__annotations__}


def report_of(executable: Any) -> ProgramReport:
    """Compile the program of an executable for its topology; return its report."""
    loaded, stages = executable.loaded, executable.stages
    devices = (*executable.in_specs, *executable.out_specs)[0].sharding.device_assignment
    limit = getattr(devices[0], "device_memory_bytes_limit", None)
    report = ProgramReport(
        stages.name, devices[0].device_kind, len(devices), limit, _totals(executable)
    )
    try:
        report.lines = loaded.text_to_compile.count("\n")
        report.memory = loaded.memory() or {}
        report.cost = loaded.cost() or _count_cost(stages, report)
    except (RuntimeError, MemoryError) as error:
        report.error = str(error).partition("\n")[0]
    seconds = stages.seconds
    report.plugin_seconds = seconds.get("compile by the plugin", 0.0)
    report.weft_seconds = seconds["total"] + seconds.get("write StableHLO", 0.0)
    return report


def _totals(executable: Any) -> list[CollectiveTotal]:
    totals: dict[tuple[str, bool], CollectiveTotal] = {}
    for collective in collectives_of(executable):
        key = collective.kind, collective.open_ended
        total = totals.setdefault(key, CollectiveTotal(*key))
        total.count += collective.count
        total.bytes += collective.bytes
    return list(totals.values())


def _count_cost(stages: Any, report: ProgramReport) -> dict[str, float]:
    """Return weft's own counts, for a plugin without estimates."""
    from weft._engine.hlo.compiled_hlo import fused_module
    from weft._engine.hlo.cost import module_cost

    report.cost_source = "weft"
    return module_cost(fused_module(stages))
