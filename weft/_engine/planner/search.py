"""The search: the fastest layouts of a model on a cluster that fit in memory.

In:   a model, a cluster, the batch, the memory of a device.
Out:  `TrainingPlan`s in the order of their seconds; the rejected classes of candidates.
Laws: the number of candidates grows with the logarithm of the number of devices. Of layouts that differ only in
      recomputation, the one with the least that fits is the fastest, so the others are not considered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft._engine.planner.cluster import Cluster
from weft._engine.planner.layer_cost import LayerCost, head_seconds, layer_cost
from weft._engine.planner.layout import RECOMPUTE, Overlap, TrainingLayout, TrainingPrecision
from weft._engine.planner.memory import memory_use
from weft._engine.planner.step_time import stage_layers, step_time
from weft._engine.planner.training_plan import RejectedClass, SearchSummary, TrainingPlan
from weft._engine.planner.transformer import TransformerModel
from weft._engine.planner.units import spell_bytes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import record, replace

#: share of a device's memory that a plan may use; the rest is for the runtime, libraries and fragmentation
USABLE_MEMORY = 0.92
#: shares of collectives that overlap with computation: gradients and parameters, the tensor axis, and sends of the pipeline
SEARCH_OVERLAP = Overlap(data=0.9, tensor=0.5, pipeline=1.0)
_CHUNKS = (1, 2, 3, 4, 5, 6, 8)
_MOST_TENSOR = 64
_MOST_CONTEXT = 64
_MOST_MICRO_BATCH = 16
#: fewest tokens of a sequence on a device of the context axis
_LEAST_CONTEXT_TOKENS = 1024
#: largest share of a pipeline's time that uneven stages may waste
_MOST_UNEVEN = 0.15


@record
class SearchRequest:
    """A model, a cluster, the sequences of a step, the bytes that a plan may use on each device, and the precision."""

    model: TransformerModel
    cluster: Cluster
    batch: int
    memory: float
    precision: TrainingPrecision


@record
class MeshShape:
    """Degrees of parallelism whose product is the number of devices; `expert` divides `data * context`."""

    data: int
    tensor: int
    pipeline: int
    context: int
    expert: int

    @property
    def model_split(self) -> int:
        """Devices over which the dense parameters are divided without ZeRO."""
        return self.tensor * self.pipeline


class _Rejections:
    """Counts of rejected candidates, by class."""

    def __init__(self) -> None:
        self.shapes: dict[tuple[str, str], int] = {}
        self.peaks: dict[int, list[float]] = {}
        self.fitting_splits: set[int] = set()

    def reject_shape(self, candidates: str, reason: str) -> None:
        """Record a mesh shape that cannot be a layout."""
        key = candidates, reason
        self.shapes[key] = self.shapes.get(key, 0) + 1

    def classes(self) -> tuple[RejectedClass, ...]:
        """Return the classes without a fitting candidate, then the shapes that cannot be layouts."""
        too_large = [
            RejectedClass(
                "parameters whole" if split == 1 else f"parameters over {split} devices",
                f"does not fit: smallest peak {spell_bytes(min(peaks))}",
                len(peaks),
            )
            for split, peaks in sorted(self.peaks.items())
            if split not in self.fitting_splits
        ]
        shapes = [RejectedClass(*key, count) for key, count in self.shapes.items()]
        return (*too_large, *shapes)


def divisors(n: int) -> list[int]:
    """Return the divisors of `n` in ascending order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def _powers_of_two(n: int, most: int) -> list[int]:
    """Return the powers of two that divide `n` and are at most `most`."""
    return [1 << i for i in range(most.bit_length()) if n % (1 << i) == 0 and 1 << i <= most]


def mesh_shapes(request: SearchRequest, rejections: _Rejections) -> Iterator[MeshShape]:
    """Yield the mesh shapes that the model, the batch and the nodes allow; record the others."""
    model, cluster = request.model, request.cluster
    most_context = min(_MOST_CONTEXT, max(1, model.seq // _LEAST_CONTEXT_TOKENS))
    for tensor in divisors(cluster.devices):
        if tensor > _MOST_TENSOR or tensor > model.heads:
            break
        if tensor > cluster.per_node:
            rejections.reject_shape(
                f"tensor above {cluster.per_node}", "the tensor axis does not leave a node"
            )
            continue
        if model.heads % tensor or model.feed_forward % tensor:
            rejections.reject_shape(
                f"tensor {tensor}", f"does not divide {quantity(model.heads, 'head')} and the MLP"
            )
            continue
        for context in _powers_of_two(cluster.devices // tensor, most_context):
            for pipeline in divisors(cluster.devices // tensor // context):
                yield from _data_shapes(request, rejections, tensor, context, pipeline)


def _data_shapes(
    request: SearchRequest, rejections: _Rejections, tensor: int, context: int, pipeline: int
) -> Iterator[MeshShape]:
    model = request.model
    data = request.cluster.devices // tensor // context // pipeline
    if pipeline > model.layers:
        rejections.reject_shape(
            f"pipeline above {model.layers}", f"there are {quantity(model.layers, 'layer')}"
        )
    elif request.batch % data:
        rejections.reject_shape(
            "data axes that do not divide the batch", f"the batch is {request.batch}"
        )
    elif _unevenness(model, pipeline, 1) > _MOST_UNEVEN:
        rejections.reject_shape(
            "uneven pipelines",
            f"{quantity(model.layers, 'layer')} leave stages idle for over {_MOST_UNEVEN:.0%}",
        )
    elif not model.experts:
        yield MeshShape(data, tensor, pipeline, context, 1)
    else:
        for expert in _powers_of_two(model.experts, model.experts):
            if (data * context) % expert == 0:
                yield MeshShape(data, tensor, pipeline, context, expert)


def _unevenness(model: TransformerModel, pipeline: int, chunks: int) -> float:
    """Return the share of a pipeline's time that its longest stage adds."""
    layout = TrainingLayout(1, pipeline=pipeline, interleave=chunks)
    layers, head_is_layer = stage_layers(model, layout)
    return 0.0 if head_is_layer else layers * pipeline / model.layers - 1


def layouts(request: SearchRequest, shape: MeshShape) -> Iterator[TrainingLayout]:
    """Yield the layouts of a mesh shape: micro batches, chunks and ZeRO stages, with no recomputation."""
    for micro_batch in _powers_of_two(request.batch // shape.data, _MOST_MICRO_BATCH):
        count = request.batch // shape.data // micro_batch
        for chunks in _CHUNKS if shape.pipeline > 1 and count % shape.pipeline == 0 else (1,):
            uneven = _unevenness(request.model, shape.pipeline, chunks)
            if shape.pipeline * chunks > request.model.layers or (chunks > 1 and uneven > 0):
                continue
            for zero in _zero_stages(shape):
                yield TrainingLayout(
                    request.batch,
                    micro_batch,
                    shape.data,
                    shape.tensor,
                    shape.pipeline,
                    shape.context,
                    shape.expert,
                    chunks,
                    zero,
                    "none",
                    shape.tensor > 1,
                    request.precision,
                    SEARCH_OVERLAP,
                )


def _zero_stages(shape: MeshShape) -> tuple[int, ...]:
    """Return the ZeRO stages to consider.

    A divided optimizer is never slower than a replicated one.
    """
    if shape.data * shape.context == 1:
        return (0,)
    return (1, 2, 3) if shape.pipeline == 1 else (1,)


class _CostTable:
    """Costs of layers and heads, shared by layouts with equal ones."""

    def __init__(self, request: SearchRequest):
        self.request = request
        self.layers: dict[tuple, LayerCost] = {}
        self.heads: dict[tuple, float] = {}

    def seconds(self, layout: TrainingLayout):
        """Return the `StepTime` of a layout."""
        model, machine = self.request.model, self.request.cluster.machine
        key = layout.micro_batch, layout.tensor, layout.context
        layer_key = *key, layout.expert, layout.recompute
        if key not in self.heads:
            self.heads[key] = head_seconds(model, layout, machine)
        if layer_key not in self.layers:
            self.layers[layer_key] = layer_cost(model, layout, machine)
        return step_time(model, layout, machine, self.layers[layer_key], self.heads[key])


def search(request: SearchRequest, top: int) -> list[TrainingPlan]:
    """Return the `top` fastest plans that fit.

    If no candidate fits, `ValueError` states the smallest peak and the layout that has it.
    """
    rejections, costs = _Rejections(), _CostTable(request)
    ranked: list[tuple[float, int, TrainingLayout]] = []
    considered, smallest = 0, (math.inf, None)
    for shape in mesh_shapes(request, rejections):
        for layout in layouts(request, shape):
            considered += 1
            fitting, peak = _least_recomputation(request, layout)
            smallest = min(smallest, (peak, layout), key=lambda pair: pair[0])
            if fitting is None:
                rejections.peaks.setdefault(shape.model_split, []).append(peak)
                continue
            rejections.fitting_splits.add(shape.model_split)
            ranked.append((costs.seconds(fitting).seconds, considered, fitting))
    if not ranked:
        raise ValueError(_no_plan_text(request, smallest, rejections))
    ranked.sort(key=lambda entry: entry[:2])
    summary = SearchSummary(considered, len(ranked), rejections.classes())
    return [
        TrainingPlan(
            request.model,
            request.cluster,
            layout,
            costs.seconds(layout),
            memory_use(request.model, layout),
            summary,
        )
        for _, _, layout in ranked[:top]
    ]


def _least_recomputation(
    request: SearchRequest, layout: TrainingLayout
) -> tuple[TrainingLayout | None, float]:
    """Return the layout with the least recomputation that fits, if any does, and its peak or the smallest one."""
    peak = math.inf
    for recompute in RECOMPUTE:
        layout = replace(layout, recompute=recompute)
        peak = memory_use(request.model, layout).total
        if peak <= request.memory:
            return layout, peak
    return None, peak


def _no_plan_text(
    request: SearchRequest, smallest: tuple[float, TrainingLayout | None], rejections: _Rejections
) -> str:
    where = f"plan: no layout of {request.model.name} on {request.cluster} "
    peak, layout = smallest
    if layout is None:
        reasons = "; ".join(map(str, rejections.classes()))
        return (
            f"{where}trains {quantity(request.batch, 'sequence')} a step ({reasons}). Choose a batch that is a multiple of the "
            "number of devices, or of a large divisor of it."
        )
    axes = {"data": layout.data, "tensor": layout.tensor, "pipeline": layout.pipeline}
    axes |= {"context": layout.context, "expert": layout.expert}
    mesh = ", ".join(f"{name} {size}" for name, size in axes.items() if size > 1) or "one device"
    return (
        f"{where}fits in {spell_bytes(request.memory)} a device. The smallest possible peak is {spell_bytes(peak)} ({mesh}, "
        f"micro batch {layout.micro_batch}, ZeRO {layout.zero}, full recomputation). Use more devices, shorter sequences, or a "
        "machine with more memory."
    )
