"""The step time of a layout, by cause.

In:   a model, a layout, a machine.
Out:  `StepTime`: seconds of a step by cause, and the seconds of collectives that computation hides.
Laws: the total is the sum of the parts. No part is negative.

A pipeline runs one forward and one backward pass at a time (1F1B), with interleaved chunks where the layout has them; its
bubble is `(pipeline - 1) / interleave` micro batches. Gradients are reduced behind the backward pass of the last micro
batch; with ZeRO 3, parameters are gathered and gradients reduced for each micro batch behind all computation.
"""

from __future__ import annotations

from weft._engine.partition.auto.machine_rates import Machine, collective_seconds, stream_seconds
from weft._engine.planner.layer_cost import (
    ACTIVATION_BYTES,
    CONTENTION,
    LayerCost,
    head_seconds,
    layer_cost,
)
from weft._engine.planner.layout import TrainingLayout
from weft._engine.planner.transformer import TransformerModel
from weft._engine.util.record import record

#: part -> its description in reports
PART_NAMES = {
    "matmul": "matmuls with weights",
    "attention": "attention",
    "elementwise": "memory traffic of elementwise ops",
    "recompute": "recomputation",
    "head": "output projection and loss",
    "tensor": "collectives of the tensor axis",
    "context": "exchange of keys and values",
    "expert": "exchange of tokens",
    "data": "gradients and parameters over the data axis",
    "bubble": "idle time of the pipeline",
    "sends": "sends between pipeline stages",
    "optimizer": "optimizer",
}
#: bytes of parameters and gradients that the optimizer reads and writes
_OPTIMIZER_TRAFFIC = 18


@record
class StepTime:
    """Seconds of a step, by cause; `hidden` are seconds of collectives that computation hides, which are in no part."""

    matmul: float
    attention: float
    elementwise: float
    recompute: float
    head: float
    tensor: float
    context: float
    expert: float
    data: float
    bubble: float
    sends: float
    optimizer: float
    hidden: float = 0.0

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by cause."""
        return {name: getattr(self, name) for name in PART_NAMES}

    @property
    def seconds(self) -> float:
        """The seconds of a step."""
        return sum(self.parts.values())

    @property
    def forward_share(self) -> float:
        """The forward pass's share of the seconds of a micro batch: a third of its work, and the attention's own share."""
        once = self.matmul + self.elementwise + self.head
        recompute = self.recompute
        collectives = self.tensor + self.context + self.expert
        work = once + self.attention + collectives + recompute + self.sends
        forward = once / 3 + self.attention / 3 + collectives / 2 + self.sends / 2
        return forward / work

    @property
    def bottleneck(self) -> str:
        """The cause with the most seconds."""
        parts = self.parts
        return max(parts, key=lambda name: parts[name])


def stage_layers(model: TransformerModel, layout: TrainingLayout) -> tuple[float, bool]:
    """Return the layers of the longest pipeline stage, and whether embedding and head take the place of a layer each.

    >>> from weft._engine.planner.named_models import find_model
    >>> stage_layers(find_model("llama3-405b"), TrainingLayout(8, pipeline=8, interleave=8))  # 126 layers
    (16.0, True)
    """
    chunks = layout.pipeline * layout.interleave
    if model.layers % chunks == 0:
        return model.layers / layout.pipeline, False
    if (model.layers + 2) % chunks == 0:
        return (model.layers + 2) / layout.pipeline, True
    return float(-(-model.layers // chunks) * layout.interleave), False


def step_time(
    model: TransformerModel,
    layout: TrainingLayout,
    machine: Machine,
    layer: LayerCost | None = None,
    head: float | None = None,
) -> StepTime:
    """Return the seconds of a step; `layer` and `head` are results of `layer_cost` and `head_seconds` to reuse.

    >>> from weft._engine.partition.auto.machine_rates import MACHINES
    >>> from weft._engine.planner.named_models import find_model
    >>> model, machine = find_model("llama3-8b"), MACHINES["h100"]
    >>> time = step_time(model, TrainingLayout(64, data=8, zero=3), machine)
    >>> time.bottleneck, time.bubble
    ('matmul', 0.0)
    """
    layer = layer_cost(model, layout, machine) if layer is None else layer
    head = head_seconds(model, layout, machine) if head is None else head
    layers, head_is_layer = stage_layers(model, layout)
    once, hidden = _layer_seconds(layer, layout)
    sends = _send_seconds(model, layout, machine)
    sends -= min(sends * layout.overlap.pipeline, layers * sum(once.values()))
    stage = layers * sum(once.values()) + sends
    count = layout.micro_batches
    if head_is_layer:  # the last chunk has a head instead of a layer: only the excess counts
        head = max(0.0, head - sum(once.values()))
    data, hidden_data = _data_seconds(model, layout, machine, stage, layers * layer.backward)
    return StepTime(
        **{name: seconds * layers * count for name, seconds in once.items()},
        head=head * count,
        data=data,
        bubble=(layout.pipeline - 1) / layout.interleave * stage,
        sends=sends * count,
        optimizer=_optimizer_seconds(model, layout, machine),
        hidden=hidden_data + hidden * layers * count,
    )


def _layer_seconds(layer: LayerCost, layout: TrainingLayout) -> tuple[dict[str, float], float]:
    """Return the seconds of all passes of a micro batch through a layer, by cause, and the hidden seconds."""
    passes = 3 if layout.recompute == "full" else 2
    tensor = passes * layer.tensor + layer.tensor_gather
    hidden = layout.overlap.tensor * (1 - CONTENTION) * tensor
    parts = {
        "matmul": 3 * layer.matmul,
        "attention": layer.attention + layer.attention_backward,
        "elementwise": 3 * layer.elementwise,
        "recompute": layer.recompute,
        "tensor": tensor - hidden,
        "context": passes * layer.context,
        "expert": passes * layer.expert,
    }
    return parts, hidden


def _send_seconds(model: TransformerModel, layout: TrainingLayout, machine: Machine) -> float:
    """Return the seconds of sending a micro batch's activations into and out of all chunks of a stage."""
    if layout.pipeline == 1:
        return 0.0
    tokens = layout.micro_batch * model.seq // layout.context
    nbytes = tokens * model.hidden * ACTIVATION_BYTES / layout.sequence_split
    stride = layout.tensor * layout.context * layout.data
    one = collective_seconds(machine, "collective_permute", nbytes, layout.pipeline, stride)
    return 2 * layout.interleave * one


def shard_parameters(model: TransformerModel, layout: TrainingLayout) -> tuple[float, float]:
    """Return the parameters of one device before any division over the data axis: dense ones, and experts."""
    split = layout.tensor * layout.pipeline
    dense = (model.dense_parameters + model.embedding_parameters) / split
    return dense, model.expert_parameters / split / layout.expert


def _data_seconds(
    model: TransformerModel,
    layout: TrainingLayout,
    machine: Machine,
    stage: float,
    backward: float,
) -> tuple[float, float]:
    """Return the exposed and the hidden seconds of collectives over the data axis.

    `stage` and `backward` are the seconds of a micro batch and of its backward pass, behind which they run.
    """
    gather, reduce = 0.0, 0.0
    dense, experts = shard_parameters(model, layout)
    groups = ((dense, layout.replicas, layout.tensor),)
    groups += ((experts, layout.replicas // layout.expert, layout.tensor * layout.expert),)
    for count, size, stride in groups:
        nbytes = count * layout.precision.parameter_bytes
        gather += collective_seconds(machine, "all_gather", nbytes, size, stride)
        nbytes = count * layout.precision.gradient_bytes
        reduce += collective_seconds(machine, "reduce_scatter", nbytes, size, stride)
    if layout.zero == 3:
        total = (2 * gather + reduce) * layout.micro_batches
        window = stage * layout.micro_batches
    elif layout.zero:
        total = gather + reduce * (layout.micro_batches if layout.zero == 2 else 1)
        window = backward * (layout.micro_batches if layout.zero == 2 else 1)
    else:
        total, window = 2 * reduce, backward
    hidden = min(total * layout.overlap.data, window)
    return total - hidden + CONTENTION * hidden, (1 - CONTENTION) * hidden


def _optimizer_seconds(model: TransformerModel, layout: TrainingLayout, machine: Machine) -> float:
    dense, experts = shard_parameters(model, layout)
    if layout.zero:
        dense, experts = dense / layout.replicas, experts * layout.expert / layout.replicas
    nbytes = layout.precision.optimizer_bytes + _OPTIMIZER_TRAFFIC
    return stream_seconds(machine, (dense + experts) * nbytes)
