"""The timeline of a step: when each pipeline stage computes forward and backward passes, communicates, and is idle.

In:   a layout, and the seconds of a forward and of a backward pass of a micro batch through a stage.
Out:  `Interval`s of each stage.
Laws: no two intervals of a stage overlap. With chunks of equal length the last interval ends after
      `micro_batches + (pipeline - 1) / interleave` micro batches, the time that `step_time` charges.

The order follows Narayanan et al. 2021 (arXiv:2104.04473): one forward and one backward pass at a time (1F1B), over
interleaved chunks where the layout has them.
"""

from __future__ import annotations

from typing import Literal

from weft._engine.planner.layout import TrainingLayout
from weft._engine.util.record import record

Activity = Literal["forward", "backward", "data", "optimizer"]


@record
class Interval:
    """An activity of a stage between two times, in seconds."""

    activity: Activity
    start: float
    end: float


@record
class _PipelinePass:
    """The forward or backward pass of one micro batch through one chunk."""

    is_forward: bool
    chunk: int
    micro_batch: int


def stage_timelines(
    layout: TrainingLayout, forward: float, backward: float
) -> list[list[Interval]]:
    """Return the intervals of each pipeline stage; `forward` and `backward` are seconds for all chunks of a stage.

    >>> layout = TrainingLayout(batch=2, pipeline=2)
    >>> for stage in stage_timelines(layout, 1.0, 2.0):
    ...     print([(interval.activity[0], interval.start, interval.end) for interval in stage])
    [('f', 0.0, 1.0), ('f', 1.0, 2.0), ('b', 4.0, 6.0), ('b', 7.0, 9.0)]
    [('f', 1.0, 2.0), ('b', 2.0, 4.0), ('f', 4.0, 5.0), ('b', 5.0, 7.0)]
    """
    stages, chunks = layout.pipeline, layout.interleave
    orders = [_stage_order(layout, stage) for stage in range(stages)]
    seconds = {True: forward / chunks, False: backward / chunks}
    ends: dict[tuple[int, _PipelinePass], float] = {}
    timelines: list[list[Interval]] = [[] for _ in range(stages)]
    waiting = set(range(stages))
    while waiting:
        pending = sum(map(len, timelines))
        for stage in sorted(waiting):
            timeline, order = timelines[stage], orders[stage]
            while len(timeline) < len(order):
                step = order[len(timeline)]
                before = _predecessor(layout, stage, step)
                if before is not None and before not in ends:
                    break
                ready = 0.0 if before is None else ends[before]
                start = max(ready, timeline[-1].end if timeline else 0.0)
                end = ends[stage, step] = start + seconds[step.is_forward]
                timeline.append(Interval("forward" if step.is_forward else "backward", start, end))
            if len(timeline) == len(order):
                waiting.remove(stage)
        if sum(map(len, timelines)) == pending and waiting:
            raise ValueError(
                f"stage_timelines: {layout.micro_batches} micro batches do not fill {stages} stages of {chunks} chunks. With "
                "chunks, the number of micro batches is a multiple of the number of stages."
            )
    return timelines


def _stage_order(layout: TrainingLayout, stage: int) -> list[_PipelinePass]:
    """Return the passes of a stage in order: forward passes to fill the pipeline, then backward and forward in turn."""
    stages, chunks = layout.pipeline, layout.interleave
    total = layout.micro_batches * chunks
    warm_up = stages - stage - 1
    if chunks > 1:
        warm_up = 2 * warm_up + (chunks - 1) * stages

    def numbered(number: int, is_forward: bool) -> _PipelinePass:
        group, place = divmod(number, stages * chunks)
        chunk = place // stages if chunks > 1 else 0
        micro_batch = group * stages + place % stages if chunks > 1 else number
        return _PipelinePass(is_forward, chunk if is_forward else chunks - 1 - chunk, micro_batch)

    first = min(warm_up, total)
    order = [numbered(i, True) for i in range(first)]
    for i in range(total - first):
        order += [numbered(first + i, True), numbered(i, False)]
    return order + [numbered(i, False) for i in range(total - first, total)]


def _predecessor(
    layout: TrainingLayout, stage: int, step: _PipelinePass
) -> tuple[int, _PipelinePass] | None:
    """Return the stage and pass whose result a pass needs; None for the first forward pass."""
    last, chunks = layout.pipeline - 1, layout.interleave
    if step.is_forward:
        if stage > 0:
            return stage - 1, step
        if step.chunk > 0:
            return last, _PipelinePass(True, step.chunk - 1, step.micro_batch)
        return None
    if stage < last:
        return stage + 1, step
    if step.chunk < chunks - 1:
        return 0, _PipelinePass(False, step.chunk + 1, step.micro_batch)
    return stage, _PipelinePass(True, step.chunk, step.micro_batch)
