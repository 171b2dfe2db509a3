"""Timelines of pipeline stages agree with the bubble that the step time charges."""

from itertools import pairwise

import pytest

from weft._engine.planner.layout import TrainingLayout
from weft._engine.planner.pipeline_schedule import stage_timelines
from weft._engine.planner.report import as_text, gantt_chart


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_timelines_take_the_time_of_the_bubble(stages, chunks, rounds):
    count = stages * rounds
    layout = TrainingLayout(count, pipeline=stages, interleave=chunks if stages > 1 else 1)
    timelines = stage_timelines(layout, 1.0, 2.0)
    end = max(timeline[-1].end for timeline in timelines)
    assert end == pytest.approx(3 * (count + (stages - 1) / layout.interleave))


@pytest.mark.parametrize("stages, chunks, count", [(4, 1, 3), (4, 1, 10), (4, 2, 8), (3, 3, 6)])
def test_stages_do_every_pass_once_and_one_at_a_time(stages, chunks, count):
    layout = TrainingLayout(count, pipeline=stages, interleave=chunks)
    for timeline in stage_timelines(layout, 1.0, 2.0):
        assert all(a.end <= b.start + 1e-9 for a, b in pairwise(timeline))
        activities = [interval.activity for interval in timeline]
        assert activities.count("forward") == activities.count("backward") == count * chunks


def test_the_first_stage_keeps_no_more_micro_batches_than_stages():
    for timeline in stage_timelines(TrainingLayout(16, pipeline=4), 1.0, 2.0):
        under_way, most = 0, 0
        for interval in timeline:
            under_way += 1 if interval.activity == "forward" else -1
            most = max(most, under_way)
        assert most <= 4


def test_chunks_need_full_rounds():
    with pytest.raises(ValueError, match="5 micro batches do not fill 4 stages of 2 chunks"):
        stage_timelines(TrainingLayout(5, pipeline=4, interleave=2), 1.0, 2.0)


def test_a_chart_shows_each_stage():
    text = as_text([gantt_chart(stage_timelines(TrainingLayout(4, pipeline=2), 1.0, 2.0))])
    lines = text.splitlines()
    assert lines[0].startswith("stage 0 FFFF") and lines[1].startswith("stage 1 ····")
    assert lines[0].count("B") == pytest.approx(2 * lines[0].count("F"), abs=2)
    assert lines[-2].endswith("15 s")
    assert lines[-1].strip() == "F forward, B backward, · idle"
