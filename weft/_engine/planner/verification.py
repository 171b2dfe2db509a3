"""Verification against a compiler: the memory of a plan's program, compiled for devices that need
not be attached.

In:   a `TrainingPlan`, and an installed PJRT plugin for its machine.
Out:  `Verification`: predicted and compiled bytes of a device.

The compiled program is one pipeline stage with the optimizer: its layers, the embedding and the
output projection, and one micro batch per replica. The prediction is for the same stage and micro
batch, not for the whole plan.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

from weft._engine.api.jit import jit
from weft._engine.backends import targets
from weft._engine.backends.pjrt import topology
from weft._engine.planner.layout import TrainingLayout
from weft._engine.planner.memory import memory_use
from weft._engine.planner.step_time import stage_layers
from weft._engine.planner.training_plan import TrainingPlan
from weft._engine.planner.training_program import training_program
from weft._engine.planner.transformer import TransformerModel
from weft._engine.planner.units import spell_bytes
from weft._engine.runtime.topology import create_device_mesh
from weft._engine.util.record import record, replace
from weft.sharding import Mesh

#: machine -> the kind of devices to compile for
_KINDS = {
    "a100": "a100",
    "h100": "h100",
    "tpu-v4": "v4",
    "tpu-v5e": "v5e",
    "tpu-v5p": "v5p",
    "tpu-v6e": "v6e",
}
#: platform -> options of its compiler. XLA's code motion for GPUs aborts on the combined reductions of a loop.
_OPTIONS: dict[str, dict[str, str]] = {
    "cuda": {"xla_disable_hlo_passes": "while-loop-all-reduce-code-motion"},
    "tpu": {},
}
_MESH_AXES = ("data", "context", "tensor")


@record
class Verification:
    """Bytes of one device: of the arguments (the training state) and at the peak, predicted and compiled."""

    devices: int
    target: str
    layers: int
    predicted_state: float
    compiled_state: float
    predicted_peak: float
    compiled_peak: float
    seconds: float

    def __str__(self) -> str:
        rows = [
            ("training state", self.predicted_state, self.compiled_state),
            ("peak", self.predicted_peak, self.compiled_peak),
        ]
        lines = [
            f"  {name:16}predicted {spell_bytes(guess):>9}, compiled {spell_bytes(size):>9} ({guess / size - 1:+.0%})"
            for name, guess, size in rows
        ]
        stage = f"{self.layers} layers, one micro batch on each replica"
        first = f"Compiled for {self.target} in {self.seconds:.0f} s: one stage of {stage}, {self.devices} devices"
        return "\n".join([first, *lines])


def verify(plan: TrainingPlan) -> Verification:
    """Compile the program of a plan's pipeline stage and compare its memory.

    Raise `RuntimeError` if the plugin for the machine is not installed or refuses the program, `NotImplementedError` for a machine that
    no plugin compiles for and for models and layouts without a program (`training_program`).
    """
    model, layout = stage_of(plan)
    kind = _KINDS.get(plan.cluster.machine.name)
    if kind is None:
        raise NotImplementedError(
            f"verify: programs for {plan.cluster.machine.name!r} are not implemented; there are plugins for {', '.join(_KINDS)}."
        )
    target = targets.parse_target(target_name(kind, layout.devices, plan.cluster.per_node))
    start = time.perf_counter()
    devices = topology.describe(target.platform, target.topology, target.options).devices()
    shape = layout.data, layout.context, layout.tensor
    mesh = Mesh(create_device_mesh(shape, list(devices)), _MESH_AXES)
    program = training_program(model, layout, mesh)
    step: Any = jit(program.step, donate_argnums=0)
    lowered = step.lower(program.state, program.tokens)
    with warnings.catch_warnings():  # the option is for the plugin only
        warnings.filterwarnings("ignore", "compile: compiler_options: weft does not implement")
        compiled = lowered.compile(_OPTIONS[target.platform])
    sizes = vars(compiled.memory_analysis())
    peak = sizes["peak_memory_in_bytes"] or (
        sizes["argument_size_in_bytes"]
        + sizes["output_size_in_bytes"]
        - sizes["alias_size_in_bytes"]
        + sizes["temp_size_in_bytes"]
    )
    use = memory_use(model, layout)
    return Verification(
        layout.devices,
        target.name,
        model.layers,
        predicted_state=_resting_bytes(model, layout),
        compiled_state=sizes["argument_size_in_bytes"],
        predicted_peak=use.total,
        compiled_peak=peak,
        seconds=time.perf_counter() - start,
    )


def stage_of(plan: TrainingPlan) -> tuple[TransformerModel, TrainingLayout]:
    """Return the model of one pipeline stage, and its layout for one micro batch, whose gradients stay in 16 bits."""
    layers, head_is_layer = stage_layers(plan.model, plan.layout)
    layers = math.ceil(layers) - head_is_layer
    layout = plan.layout
    single = replace(
        layout,
        batch=layout.data * layout.micro_batch,
        pipeline=1,
        interleave=1,
        precision=replace(layout.precision, gradient_bytes=2),
    )
    return replace(plan.model, layers=layers, flash=True), single


def _resting_bytes(model: TransformerModel, layout: TrainingLayout) -> float:
    """Return the bytes of parameters and optimizer state between steps."""
    use, precision = memory_use(model, layout), layout.precision
    if layout.zero < 3:
        return use.parameters + use.optimizer
    return use.optimizer * (1 + precision.parameter_bytes / precision.optimizer_bytes)


def target_name(kind: str, devices: int, per_node: int) -> str:
    """Return the name of a target with `devices` devices.

    >>> target_name("h100", 64, 8), target_name("v5p", 32, 8960), target_name("v5e", 8, 256)
    ('h100:8x8', 'v5p:2x4x4', 'v5e:2x4')
    """
    if kind in targets.GPU_KINDS:
        inside = min(devices, per_node)
        return f"{kind}:{-(-devices // inside)}x{inside}"
    sides = [1] * targets.TPU_KINDS[kind].dims
    devices_left = devices
    while devices_left > 1:
        factor = next(d for d in range(2, devices_left + 1) if devices_left % d == 0)
        sides[sides.index(min(sides))] *= factor
        devices_left //= factor
    return f"{kind}:{'x'.join(map(str, sorted(sides)))}"
