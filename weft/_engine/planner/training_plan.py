"""Results of a search: plans, and the reasons for rejecting other candidates.

In:   a model, a cluster, a layout, and its seconds and bytes.
Out:  `TrainingPlan`, whose text is a report; `SearchSummary` with the rejected classes of candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table

from weft._engine.planner.cluster import Cluster
from weft._engine.planner.layout import TrainingLayout
from weft._engine.planner.memory import MemoryUse
from weft._engine.planner.pipeline_schedule import Interval, stage_timelines
from weft._engine.planner.report import as_text, bars, facts, gantt_chart, spell_seconds, table
from weft._engine.planner.step_time import PART_NAMES, StepTime
from weft._engine.planner.transformer import TransformerModel
from weft._engine.planner.units import spell_bytes, spell_count
from weft._engine.util.record import record, replace

#: maximal number of micro batches in a chart
_MOST_CHARTED = 24


@record
class RejectedClass:
    """Candidates with one property, and why none of them is a plan."""

    candidates: str
    reason: str
    count: int

    def __str__(self) -> str:
        return f"{self.candidates}: {self.reason}"


@record
class SearchSummary:
    """The numbers of layouts that a search considered and that fit in memory, and the rejected classes."""

    considered: int
    fitting: int
    rejected: tuple[RejectedClass, ...] = ()


@record
class TrainingPlan:
    """One way to train a model on a cluster, with its predicted time and memory.

    `print(plan)` shows the mesh, the seconds and the bytes by cause, and a chart of the step.
    """

    __module__ = "weft.auto"

    model: TransformerModel
    cluster: Cluster
    layout: TrainingLayout
    time: StepTime
    memory: MemoryUse
    summary: SearchSummary

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.time.seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of all devices."""
        return self.layout.batch * self.model.seq / self.seconds

    @property
    def mfu(self) -> float:
        """The model FLOPs of a step, without recomputation, as a share of what the devices could compute in its time."""
        peak = self.cluster.machine.flops(self.layout.precision.matmul) * self.layout.devices
        return self.model.flops_per_token * self.tokens_per_second / peak

    @property
    def mesh_shape(self) -> dict[str, int]:
        """The mesh axes with more than one device, outermost first; `weft.make_mesh` takes their sizes and names.

        The experts are divided over a part of the axes "data" and "context" (`layout.expert`).
        """
        layout = self.layout
        sizes = {
            "pipeline": layout.pipeline,
            "data": layout.data,
            "context": layout.context,
            "tensor": layout.tensor,
        }
        return {name: size for name, size in sizes.items() if size > 1} or {"data": 1}

    @property
    def bottleneck(self) -> str:
        """The cause with the most seconds, in words."""
        return PART_NAMES[self.time.bottleneck]

    def timelines(self) -> list[list[Interval]]:
        """Return the activities of each pipeline stage, over at most a few micro batches."""
        layout, parts = self.layout, self.time.parts
        count = self._charted_micro_batches()
        charted = replace(layout, batch=count * layout.data * layout.micro_batch)
        whole = self.seconds - parts["bubble"] - parts["data"] - parts["optimizer"]
        one = whole / layout.micro_batches
        forward = one * self.time.forward_share
        timelines = stage_timelines(charted, forward, one - forward)
        end = max(timeline[-1].end for timeline in timelines)
        scale = 1.0 if count == layout.micro_batches else count / layout.micro_batches
        reduced = end + scale * parts["data"]
        done = reduced + scale * parts["optimizer"]
        tail = [Interval("data", end, reduced), Interval("optimizer", reduced, done)]
        return [[*timeline, *tail] for timeline in timelines]

    def _charted_micro_batches(self) -> int:
        layout = self.layout
        idle = (layout.pipeline - 1) / layout.interleave
        rounds = max(1, int((_MOST_CHARTED - idle) // layout.pipeline))
        return min(layout.micro_batches, rounds * layout.pipeline)

    def renderables(self) -> list[RenderableType]:
        """Return the report as objects that rich prints."""
        time, memory = self.time, self.memory
        seconds = {PART_NAMES[k]: (v, spell_seconds(v)) for k, v in time.parts.items()}
        nbytes = {name: (size, spell_bytes(size)) for name, size in memory.parts.items()}
        return [
            facts(self.facts()),
            bars("seconds", seconds),
            bars("memory", nbytes),
            f"One step{self.charted_part()}:",
            gantt_chart(self.timelines()),
        ]

    def charted_part(self) -> str:
        """Return the share of the micro batches that `timelines` shows, in words; nothing if it shows all."""
        layout, count = self.layout, self._charted_micro_batches()
        return (
            f", {count} of {layout.micro_batches} micro batches"
            if count < layout.micro_batches
            else ""
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return the plan's facts as labels and texts."""
        layout, model = self.layout, self.model
        per_device = self.tokens_per_second / layout.devices
        hidden = f", {spell_seconds(self.time.hidden)} of communication hidden"
        experts = f", experts over {layout.expert} devices" if layout.expert > 1 else ""
        return [
            (
                "model",
                f"{model.name}, {spell_count(model.parameters)} parameters, {model.seq:,} tokens a sequence",
            ),
            ("cluster", f"{self.cluster}, {spell_bytes(self.cluster.machine.memory)} a device"),
            ("mesh", spell_mesh(self.mesh_shape) + experts),
            (
                "batch",
                f"{layout.batch:,} sequences, {layout.micro_batches} micro batches of {layout.micro_batch} on each replica",
            ),
            (
                "memory",
                f"{spell_bytes(self.memory.total)}, ZeRO {layout.zero}, recomputation: {layout.recompute}",
            ),
            (
                "step",
                f"{spell_seconds(self.seconds)}, {self.mfu:.1%} MFU, {per_device:,.0f} tokens/s a device{hidden}",
            ),
            ("bottleneck", self.bottleneck),
        ]

    def cells(self) -> tuple[str, ...]:
        """Return the plan's cells in the table of plans."""
        layout = self.layout
        chunks = f" x {layout.interleave}" if layout.interleave > 1 else ""
        return (
            spell_mesh(self.mesh_shape)
            + (f", expert {layout.expert}" if layout.expert > 1 else ""),
            f"{layout.micro_batch}{chunks}",
            str(layout.zero),
            layout.recompute,
            spell_bytes(self.memory.total),
            spell_seconds(self.seconds),
            f"{self.mfu:.1%}",
            self.time.bottleneck,
        )

    def __str__(self) -> str:
        return as_text(self.renderables())

    def __repr__(self) -> str:
        mesh = ", ".join(f"{name}={size}" for name, size in self.mesh_shape.items())
        time, nbytes = spell_seconds(self.seconds), spell_bytes(self.memory.total)
        return f"<TrainingPlan of {self.model.name}: {mesh}; {time} a step, {nbytes} a device>"


def spell_mesh(shape: dict[str, int]) -> str:
    """Return the axes of a mesh and their sizes.

    >>> spell_mesh({"data": 8, "tensor": 4})
    'data 8, tensor 4'
    """
    return ", ".join(f"{name} {size}" for name, size in shape.items())


def plans_table(plans: Sequence[TrainingPlan]) -> Table:
    """Return a table with a row for each plan."""
    columns = ("", "mesh", "micro", "ZeRO", "recompute", "memory", "step", "MFU", "bottleneck")
    rows = [(str(number), *plan.cells()) for number, plan in enumerate(plans, 1)]
    return table(columns, rows, numeric=("memory", "step", "MFU"))
