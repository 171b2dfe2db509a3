"""The memory of a layout: bytes that a device holds at the peak of a step, by cause.

In:   a model and a layout.
Out:  `MemoryUse`.
Laws: bytes never grow with the ZeRO stage or with recomputation.

Activations are counted as Korthikanti et al. 2022 (arXiv:2205.05198, section 4) count them, for 16-bit activations: a layer
keeps the inputs of its norms and products, and the results that their derivatives need.
"""

from __future__ import annotations

from weft._engine.planner.layer_cost import ACTIVATION_BYTES, kv_width
from weft._engine.planner.layout import TrainingLayout
from weft._engine.planner.step_time import shard_parameters, stage_layers
from weft._engine.planner.transformer import TransformerModel
from weft._engine.util.record import record

#: bytes of an element of the logits: float32, and its derivative
_LOGIT_BYTES = 8
#: bytes of a stored score: 16 bits before and after the softmax, and the mask of dropout
_SCORE_BYTES = 5


@record
class MemoryUse:
    """Bytes of one device at the peak of a step."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    workspace: float

    @property
    def parts(self) -> dict[str, float]:
        """Bytes by cause."""
        return {name: getattr(self, name) for name in MemoryUse.__annotations__}

    @property
    def total(self) -> float:
        """All bytes."""
        return sum(self.parts.values())


def memory_use(model: TransformerModel, layout: TrainingLayout) -> MemoryUse:
    """Return the bytes that the first pipeline stage of `layout` holds.

    >>> from weft._engine.planner.named_models import find_model
    >>> model = find_model("llama3-8b")
    >>> [round(memory_use(model, TrainingLayout(8, data=8, zero=zero)).total / 1e9) for zero in (0, 1, 2, 3)]
    [156, 72, 44, 30]
    """
    precision = layout.precision
    parameters = _parameters_per_device(model, layout, layout.zero >= 3)
    gathered = _gathered_layer(model, layout) if layout.zero >= 3 else 0.0
    return MemoryUse(
        parameters=parameters * precision.parameter_bytes + gathered,
        gradients=_parameters_per_device(model, layout, layout.zero >= 2)
        * precision.gradient_bytes,
        optimizer=_parameters_per_device(model, layout, layout.zero >= 1)
        * precision.optimizer_bytes,
        activations=_activations(model, layout),
        workspace=_workspace(model, layout),
    )


def _parameters_per_device(
    model: TransformerModel, layout: TrainingLayout, over_data: bool
) -> float:
    """Return the parameters of a device, divided `over_data` or not."""
    dense, experts = shard_parameters(model, layout)
    if not over_data:
        return dense + experts
    return dense / layout.replicas + experts * layout.expert / layout.replicas


def _gathered_layer(model: TransformerModel, layout: TrainingLayout) -> float:
    """Return the bytes of two gathered layers, one in use and one in transfer.

    Experts are not gathered.
    """
    dense = model.dense_parameters / model.layers
    experts = model.expert_parameters / max(1, model.expert_layers) / layout.expert
    gathered = 2 * (dense + experts) / layout.tensor * layout.precision.parameter_bytes
    whole = sum(shard_parameters(model, layout)) * layout.precision.parameter_bytes
    parameter_bytes = _parameters_per_device(model, layout, True) * layout.precision.parameter_bytes
    return min(gathered, whole - parameter_bytes)


def _activations(model: TransformerModel, layout: TrainingLayout) -> float:
    """Return the bytes saved for the backward passes of all micro batches in flight."""
    layers, _ = stage_layers(model, layout)
    layer = _layer_bytes(model, layout)[layout.recompute]
    under_way = min(layout.micro_batches, layout.pipeline)
    if layout.interleave > 1:
        under_way *= 1 + (layout.pipeline - 1) / (layout.pipeline * layout.interleave)
    return layer * layers * under_way


def _workspace(model: TransformerModel, layout: TrainingLayout) -> float:
    """Return the bytes of the recomputed layer and of the logits."""
    tokens = layout.micro_batch * model.seq / layout.context
    logits = tokens * model.vocab / layout.tensor * _LOGIT_BYTES
    sizes = _layer_bytes(model, layout)
    return logits + (sizes["none"] - sizes[layout.recompute])


def _layer_bytes(model: TransformerModel, layout: TrainingLayout) -> dict[str, float]:
    """Return the bytes that a layer keeps for one micro batch, by kind of recomputation."""
    tokens = layout.micro_batch * model.seq / layout.context
    hidden = model.hidden * ACTIVATION_BYTES / layout.sequence_split
    queries = model.query_width / layout.tensor * ACTIVATION_BYTES
    keys_values = 2 * kv_width(model, layout) * ACTIVATION_BYTES
    stored = 4 * hidden + (hidden if model.dropout else 0)  # inputs and results of the norms, masks
    stored += 2 * queries + keys_values + _mlp_bytes(model, layout)
    scores = 0.0
    if not model.flash:
        pairs = model.heads / layout.tensor * model.seq
        scores = pairs * _SCORE_BYTES
    # every second product's result is kept: queries, values, attention, half of the MLP, the layer's input and result
    selective = 2 * hidden + 2 * queries + keys_values / 2 + _mlp_bytes(model, layout) / 2
    return {
        "none": tokens * (stored + scores),
        "selective": tokens * (min(selective, stored) if model.flash else stored),
        "full": tokens * hidden,
    }


def _mlp_bytes(model: TransformerModel, layout: TrainingLayout) -> float:
    """Return the bytes that the MLP keeps for a token.

    Without a gate these are the input and the result of the activation; with one, the two inputs of the product, which is computed
    again. Experts keep copies of their inputs and results.
    """
    share = model.expert_layers / model.layers
    routed = model.experts_per_token * (2 * model.expert_width + 2 * model.hidden)
    routed += 2 * model.shared_width
    width = (1 - share) * 2 * model.feed_forward + share * routed
    return width / layout.tensor * ACTIVATION_BYTES
