"""`weft auto SCRIPT --mesh 4x2`: run a program, then find shardings for its largest jitted function.

In:   the arguments of `weft run`, a mesh, a machine, and the files to write.
Out:  the program's own output, then the report of the plan.
How:  the program runs on as many virtual devices as the mesh has. Each jitted function is recorded when it is traced, with
      its program, the types and names of its arguments and their donation. Results that are arguments of the next call are
      state. The function with the most floating point operations is planned.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from weft._engine import hooks
from weft._engine.ir.mesh import AxisType, Mesh
from weft._engine.partition.auto.machine_rates import find_machine
from weft._engine.runtime.device import devices
from weft._engine.runtime.topology import make_mesh
from weft._engine.util.config import MAX_DEVICES
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record
from weft.tools.automatic.measurement import measure
from weft.tools.automatic.search import SearchOptions, plan_function
from weft.tools.automatic.step_recorder import JittedStep, StepRecorder
from weft.tools.run import run_program

#: axis names of a mesh that is given by sizes only
AXIS_NAMES = "xyzuvw"
#: the machine name that stands for measuring the devices of the mesh
MEASURE = "measure"


@record
class AutoOptions:
    """The options of the command; `memory` is in gigabytes, `machine` the name of a preset or `MEASURE`."""

    program: str
    arguments: Sequence[str]
    mesh: str
    machine: str | None = None
    memory: float | None = None
    html: str | None = None
    save: str | None = None
    as_module: bool = False


def plan_program(options: AutoOptions) -> int:
    """Run the program and print the plan of its step; return 2 with a message if it cannot be planned."""
    try:
        axes = parse_mesh(options.mesh)
        if options.machine not in (None, MEASURE):
            find_machine(options.machine)
        check_files(options.html, options.save)
    except ValueError as error:
        return _fail(str(error))
    recorder = StepRecorder()
    status = run_recorded(options, math.prod(axes.values()), recorder)
    if status:
        return _fail(f"{options.program} ended with exit status {status}; nothing is planned.")
    step = recorder.largest()
    if step is None:
        return _fail(
            f"{options.program} called no jitted function. weft auto plans the largest function of weft.jit or jax.jit "
            "that the program calls."
        )
    return _plan(step, axes, options)


def _plan(step: JittedStep, axes: dict[str, int], options: AutoOptions) -> int:
    memory = None if options.memory is None else options.memory * 1e9
    try:
        mesh = mesh_of(axes)
        machine = measure(mesh) if options.machine == MEASURE else options.machine
        plan = plan_function(step.planned, SearchOptions(mesh, machine, memory))
    except (ValueError, TypeError, RuntimeError) as error:  # ShardingError, NotImplementedError too
        return _fail(f"{step.name} cannot be planned: {error}")
    print(f"\n{step.name}, {step.flops:.4g} floating point operations in a call")
    print(_state_text(step))
    print(plan.text(), end="")
    if options.html is not None:
        Path(options.html).write_text(plan.html(), encoding="utf-8")
    if options.save is not None:
        plan.save(options.save)
    return 0


def _state_text(step: JittedStep) -> str:
    """Return which arguments the plan treats as state, in a sentence."""
    roots = dict.fromkeys(re.split(r"[.\[]", name)[0] for name in step.state)
    if not roots:
        return ""
    return (
        f"State: {', '.join(roots)}. Results of a call are these arguments of the next one; both have the same shardings, "
        "and the plan counts their memory once, as donate_argnums makes them use it.\n"
    )


def run_recorded(options: AutoOptions, needed: int, recorder: StepRecorder) -> int:
    """Run the program with at least `needed` devices and return its exit status."""
    known = os.environ.get("WEFT_NUM_DEVICES", "")
    count = max(needed, int(known) if known.isdigit() else 0)
    hooks.after_tracing.append(recorder.on_trace)
    hooks.after_calls.append(recorder.on_call)
    try:
        return run_program(
            options.program, options.arguments, as_module=options.as_module, devices=count
        )
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)  # as Python does
        return 1
    finally:
        hooks.after_tracing.remove(recorder.on_trace)
        hooks.after_calls.remove(recorder.on_call)


def _fail(message: str) -> int:
    print(f"weft auto: {message}", file=sys.stderr)
    return 2


# --- options


def parse_mesh(text: str) -> dict[str, int]:
    """Return the axis sizes of a mesh such as 4x2 or data=4,model=2, by name. Raise ValueError for
    other texts.

    >>> parse_mesh("4x2"), parse_mesh("data=4,model=2")
    ({'x': 4, 'y': 2}, {'data': 4, 'model': 2})
    """
    if "=" in text:
        pairs = [part.partition("=")[::2] for part in text.split(",")]
    else:
        pairs = list(zip(AXIS_NAMES, text.split("x")))
        if len(text.split("x")) > len(AXIS_NAMES):
            raise ValueError(f"--mesh {text}: a mesh has at most {len(AXIS_NAMES)} axes.")
    axes = {name.strip(): int(size) for name, size in pairs if size.strip().isdigit()}
    if len(axes) < len(pairs) or not all(name.isidentifier() and n for name, n in axes.items()):
        raise ValueError(
            f"--mesh {text}: expected sizes such as 8 or 4x2, or axes such as data=4,model=2."
        )
    if math.prod(axes.values()) > MAX_DEVICES:
        raise ValueError(
            f"--mesh {text} needs {math.prod(axes.values()):,} devices. A process has at most {quantity(MAX_DEVICES, 'virtual device')}; "
            "weft plan chooses meshes of larger machines."
        )
    return axes


def check_files(*paths: str | None) -> None:
    """Raise ValueError if a file cannot be written since its folder does not exist."""
    for path in paths:
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise ValueError(f"{path} cannot be written: its folder does not exist.")


def mesh_of(axes: dict[str, int]) -> Mesh:
    """Return the mesh. Raise ValueError if the program has created fewer devices than it needs."""
    count = math.prod(axes.values())
    if len(devices()) < count:
        raise ValueError(
            f"the mesh needs {quantity(count, 'device')}, and the program has {len(devices())}. Leave the number of devices to weft auto."
        )
    return make_mesh(tuple(axes.values()), tuple(axes), (AxisType.Auto,) * len(axes))
