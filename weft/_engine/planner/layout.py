"""Layouts: how a training step is split over devices, and how it trades memory for work.

In:   degrees of parallelism, micro batch, ZeRO stage, recomputation, and the precision of the
      stored values.
Out:  `TrainingLayout`, with the device groups that its collectives span.

Devices are numbered with the tensor axis innermost, then context, data (with experts inside of it), and the pipeline.
"""

from __future__ import annotations

from typing import Literal

from weft._engine.util.record import field, record

Recompute = Literal["none", "selective", "full"]
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
ZERO_STAGES = (0, 1, 2, 3)


@record
class TrainingPrecision:
    """The dtype of matmuls, and the bytes that each parameter takes.

    `matmul` is the dtype of the products with weights; attention and the output projection stay in bfloat16.
    Gradients are summed in float32. `optimizer_bytes` is the state of mixed precision training with Adam: a float32 copy and two moments.
    """

    __module__ = "weft.auto"

    matmul: str = "bfloat16"
    parameter_bytes: int = 2
    gradient_bytes: int = 4
    optimizer_bytes: int = 12


@record
class Overlap:
    """Shares of the collectives of an axis that overlap with computation.

    They assume that there is enough computation.
    """

    data: float = 0.0
    tensor: float = 0.0
    pipeline: float = 1.0


@record
class TrainingLayout:
    """One way to split a training step.

    - `batch`, `micro_batch`: sequences of a step, and of one pass through a replica.
    - `data`, `tensor`, `pipeline`, `context`: degrees of parallelism; their product is the number of devices.
    - `expert`: devices among which the experts are divided. They are part of the data and context groups.
    - `interleave`: chunks of layers of each pipeline stage.
    - `zero`: 0 replicates the training state over data and context, 1 divides the optimizer state, 2 also the
      gradients, 3 also the parameters.
    - `recompute`: what the backward pass computes again. "selective" is the attention core where scores are stored; where
      attention is fused, it is the elementwise ops and every second matmul.
    - `sequence_parallel`: whether norms and residuals are divided over the tensor axis.

    Degrees below 1, unknown stages and modes, an `expert` that does not divide `data * context`, and a batch that
    is not a multiple of `data * micro_batch` raise `ValueError`.
    """

    __module__ = "weft.auto"

    batch: int
    micro_batch: int = 1
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    interleave: int = 1
    zero: int = 0
    recompute: Recompute = "full"
    sequence_parallel: bool = False
    precision: TrainingPrecision = field(default=TrainingPrecision())
    overlap: Overlap = field(default=Overlap())

    def __post_init__(self) -> None:
        degrees = (
            "batch",
            "micro_batch",
            "data",
            "tensor",
            "pipeline",
            "context",
            "expert",
            "interleave",
        )
        wrong = [f"{name} = {getattr(self, name)!r}" for name in degrees if getattr(self, name) < 1]
        if wrong:
            raise ValueError(f"TrainingLayout: {', '.join(wrong)}. Degrees are at least 1.")
        if self.zero not in ZERO_STAGES or self.recompute not in RECOMPUTE:
            raise ValueError(
                f"TrainingLayout: zero = {self.zero!r}, recompute = {self.recompute!r}. The stages are 0 to 3; "
                f"recompute is one of {', '.join(RECOMPUTE)}."
            )
        if (self.data * self.context) % self.expert:
            raise ValueError(
                f"TrainingLayout: expert = {self.expert} does not divide data * context = {self.data * self.context}."
            )
        if self.batch % (self.data * self.micro_batch):
            raise ValueError(
                f"TrainingLayout: batch = {self.batch} is not a multiple of data * micro_batch = {self.data * self.micro_batch}."
            )

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def replicas(self) -> int:
        """Devices that hold the same parameters if `zero` is below 3."""
        return self.data * self.context

    @property
    def micro_batches(self) -> int:
        """Passes of a step through each replica."""
        return self.batch // (self.data * self.micro_batch)

    @property
    def sequence_split(self) -> int:
        """The tensor axis's share in the division of norms and residuals."""
        return self.tensor if self.sequence_parallel else 1
