"""The cost of one layer: seconds of one micro batch on one device, by cause.

In:   a model, a layout, a machine.
Out:  `LayerCost` of an average layer; `head_seconds` of the output projection and the loss.
Laws: pure arithmetic on shapes. The layer of a model with experts is the average of its dense and its expert layers.

Attention and the output projection compute in bfloat16, the products with weights in the layout's matmul dtype.
"""

from __future__ import annotations

from weft._engine.partition.auto.machine_rates import (
    Machine,
    collective_seconds,
    itemsize,
    matmul_seconds,
    stream_seconds,
)
from weft._engine.planner.layout import TrainingLayout
from weft._engine.planner.transformer import TransformerModel
from weft._engine.util.record import record

#: bytes of activations
ACTIVATION_BYTES = 2
#: share of a hidden collective's time that slows computation down: it occupies some compute units
#: and memory bandwidth
CONTENTION = 0.2
#: kernels of a layer other than matmuls
_SMALL_KERNELS = 8
#: fused attention: seconds relative to its two products (softmax between them), and of its backward pass relative to two
#: forward passes (it computes the scores again: 5 products instead of 4)
_FUSED_SOFTMAX = 1.3
_FUSED_BACKWARD = 1.25
#: reads and writes of the matrix of scores where it is stored: scaling and mask, softmax, and dropout
_SCORE_PASSES = 4
#: share of the matmul FLOPs of a layer that selective recomputation of fused layers repeats: every second product with
#: a weight (keys, attention's output, one of the MLP)
_REPEATED_MATMULS = 0.36


@record
class LayerCost:
    """Seconds of the forward pass of one layer and one micro batch on one device.

    `matmul`, `elementwise` and `attention` are computation. `tensor` is one set of collectives over the tensor axis: all
    that a forward pass needs. `tensor_gather` is the additional gather of inputs in the backward pass of divided norms.
    `context` is the exposed exchange of keys and values, `expert` the exchange of tokens.
    """

    matmul: float
    elementwise: float
    attention: float
    attention_backward: float
    recompute: float
    tensor: float = 0.0
    tensor_gather: float = 0.0
    context: float = 0.0
    expert: float = 0.0

    @property
    def forward(self) -> float:
        """Seconds of computation of the forward pass."""
        return self.matmul + self.elementwise + self.attention

    @property
    def backward(self) -> float:
        """Seconds of computation of the backward pass without recomputation."""
        return 2 * self.matmul + 2 * self.elementwise + self.attention_backward


def layer_cost(model: TransformerModel, layout: TrainingLayout, machine: Machine) -> LayerCost:
    """Return the seconds of an average layer of `model`.

    >>> from weft._engine.partition.auto.machine_rates import MACHINES
    >>> from weft._engine.planner.named_models import find_model
    >>> cost = layer_cost(find_model("llama3-8b"), TrainingLayout(batch=1), MACHINES["h100"])
    >>> cost.matmul > cost.attention > cost.elementwise > 0
    True
    """
    tokens = layout.micro_batch * model.seq // layout.context
    attention = _attention_core(model, layout, machine)
    backward = 2 * attention * (_FUSED_BACKWARD if model.flash else 1)
    matmul = _projections(model, layout, machine, tokens) + _mlp(model, layout, machine, tokens)
    elementwise = _elementwise(model, layout, machine, tokens)
    recompute = {
        "none": 0.0,
        "selective": _REPEATED_MATMULS * matmul + elementwise if model.flash else attention,
        "full": matmul + elementwise + attention,
    }[layout.recompute]
    blocks = 1 if model.parallel_block else 2
    nbytes = tokens * model.hidden * ACTIVATION_BYTES
    tensor = blocks * collective_seconds(machine, "all_reduce", nbytes, layout.tensor)
    gather = 0.0
    if layout.sequence_parallel and layout.recompute != "full":
        gather = blocks * collective_seconds(machine, "all_gather", nbytes, layout.tensor)
    context = _context_exchange(model, layout, machine)
    # blocks of keys arrive while attention works on the ones before
    hidden = min(context, attention)
    return LayerCost(
        matmul,
        elementwise,
        attention,
        backward,
        recompute,
        tensor=tensor,
        tensor_gather=gather,
        context=context - hidden + CONTENTION * hidden,
        expert=_expert_exchange(model, layout, machine, tokens),
    )


def _attention_core(model: TransformerModel, layout: TrainingLayout, machine: Machine) -> float:
    rows = model.seq // layout.context
    pairs = layout.micro_batch * max(1, model.heads // layout.tensor)
    seconds = matmul_seconds(machine, rows, model.seq, model.head_dim, pairs)
    seconds += matmul_seconds(machine, rows, model.head_dim, model.seq, pairs)
    if model.flash:
        return seconds * (0.5 if model.causal else 1.0) * _FUSED_SOFTMAX
    scores = pairs * rows * model.seq * ACTIVATION_BYTES
    return seconds + stream_seconds(machine, scores * (_SCORE_PASSES + model.dropout))


def kv_width(model: TransformerModel, layout: TrainingLayout) -> int:
    """Return the width of the keys of one device, which holds at least one head."""
    return max(model.kv_width // layout.tensor, model.head_dim)


def _projections(
    model: TransformerModel, layout: TrainingLayout, machine: Machine, tokens: int
) -> float:
    dtype = layout.precision.matmul
    queries, keys = model.query_width // layout.tensor, kv_width(model, layout)
    out = matmul_seconds(machine, tokens, model.hidden, queries, dtype=dtype)
    if not model.latent:
        width = queries + 2 * keys
        return out + matmul_seconds(machine, tokens, width, model.hidden, dtype=dtype)
    down = matmul_seconds(machine, tokens, queries + model.latent, model.hidden, dtype=dtype)
    return out + down + matmul_seconds(machine, tokens, 2 * keys, model.latent, dtype=dtype)


def _mlp(model: TransformerModel, layout: TrainingLayout, machine: Machine, tokens: int) -> float:
    dense = _mlp_matmuls(model, layout, machine, tokens, model.feed_forward, 1)
    if not model.experts:
        return dense
    count = max(1, model.experts // layout.expert)
    rows = tokens * model.experts_per_token * layout.expert / model.experts
    routed = _mlp_matmuls(model, layout, machine, rows, model.expert_width, count)
    if model.shared_width:
        routed += _mlp_matmuls(model, layout, machine, tokens, model.shared_width, 1)
    routed += matmul_seconds(machine, tokens, model.experts, model.hidden)
    share = model.expert_layers / model.layers
    return share * routed + (1 - share) * dense


def _mlp_matmuls(
    model: TransformerModel,
    layout: TrainingLayout,
    machine: Machine,
    rows: float,
    width: int,
    count: int,
) -> float:
    inner, dtype = width // layout.tensor, layout.precision.matmul
    into = matmul_seconds(machine, rows, inner, model.hidden, count, dtype)
    out = matmul_seconds(machine, rows, model.hidden, inner, count, dtype)
    return (model.mlp_matrices - 1) * into + out


def _elementwise(
    model: TransformerModel, layout: TrainingLayout, machine: Machine, tokens: int
) -> float:
    """Return the seconds of norms, residuals, activations and rotations, and of casts to 8-bit floats."""
    residual = 4 if model.dropout else 3
    attention_width = model.query_width // layout.tensor + 2 * kv_width(model, layout)
    share = model.expert_layers / model.layers
    inner = (1 - share) * model.feed_forward
    inner += share * (model.experts_per_token * model.expert_width + model.shared_width)
    inner /= layout.tensor
    columns = [
        model.hidden * (3 + 3 + 2 * residual) / layout.sequence_split,
        inner * model.mlp_matrices,
        attention_width * (1 if model.flash else 2),
        4 * share * model.experts_per_token * model.hidden,  # tokens sorted by expert, and back
    ]
    if itemsize(layout.precision.matmul) == 1:  # written in two orders, half as wide
        columns.append(2 * model.hidden + model.query_width / layout.tensor + inner)
    nbytes = tokens * ACTIVATION_BYTES * sum(columns)
    kernels = _SMALL_KERNELS + sum(column > 0 for column in columns) - 1
    return stream_seconds(machine, nbytes) + kernels * machine.launch


def _context_exchange(model: TransformerModel, layout: TrainingLayout, machine: Machine) -> float:
    """Return the seconds of passing keys and values around the ring of the context axis."""
    width = 2 * kv_width(model, layout) * ACTIVATION_BYTES
    nbytes = layout.micro_batch * model.seq * width
    return collective_seconds(machine, "all_gather", nbytes, layout.context, layout.tensor)


def _expert_exchange(
    model: TransformerModel, layout: TrainingLayout, machine: Machine, tokens: int
) -> float:
    """Return the seconds of sending tokens to their experts and back."""
    copies = tokens * model.experts_per_token / layout.sequence_split
    nbytes = copies * model.hidden * ACTIVATION_BYTES
    one = collective_seconds(machine, "all_to_all", nbytes, layout.expert, layout.tensor)
    return 2 * one * model.expert_layers / model.layers


def head_seconds(model: TransformerModel, layout: TrainingLayout, machine: Machine) -> float:
    """Return the seconds of the output projection and the loss of a micro batch, forward and backward."""
    tokens = layout.micro_batch * model.seq // layout.context
    columns = max(1, model.vocab // layout.tensor)
    product = matmul_seconds(machine, tokens, columns, model.hidden)
    return 3 * (product + stream_seconds(machine, tokens * columns * 12))
