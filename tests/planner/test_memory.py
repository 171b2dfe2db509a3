"""Laws of the memory of a layout."""

import pytest

from weft._engine.planner.layout import RECOMPUTE, TrainingLayout
from weft._engine.planner.memory import memory_use
from weft._engine.planner.named_models import MODELS, find_model
from weft._engine.planner.transformer import TransformerModel
from weft._engine.util.record import replace


def total(model, layout):
    return memory_use(model, layout).total


@pytest.mark.parametrize("name", MODELS)
def test_a_higher_zero_stage_never_needs_more(name):
    expert = min(8, MODELS[name].experts or 1)
    layout = TrainingLayout(64, data=16, tensor=2, expert=expert)
    sizes = [total(MODELS[name], replace(layout, zero=zero)) for zero in range(4)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[3]


@pytest.mark.parametrize("name", MODELS)
def test_recomputation_never_needs_more(name):
    layout = TrainingLayout(64, micro_batch=2, data=4, tensor=2, sequence_parallel=True)
    sizes = [total(MODELS[name], replace(layout, recompute=kind)) for kind in RECOMPUTE]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    "change",
    [
        {"tensor": 2},
        {"tensor": 2, "sequence_parallel": True},
        {"context": 2},
        {"pipeline": 2},
        {"data": 2, "zero": 3},
    ],
    ids=str,
)
def test_more_devices_need_less_each(change):
    model = find_model("llama3-8b")
    layout = TrainingLayout(64, recompute="none")
    assert total(model, replace(layout, **change)) < total(model, layout)


def test_mixed_precision_needs_18_bytes_a_parameter():
    use = memory_use(find_model("llama3-8b"), TrainingLayout(1))
    state = use.parameters + use.gradients + use.optimizer
    assert state == 18 * find_model("llama3-8b").parameters


def test_experts_are_divided_over_their_axis():
    model = find_model("mixtral-8x7b")
    whole, divided = (
        memory_use(model, TrainingLayout(8, data=8, expert=expert)).parameters for expert in (1, 8)
    )
    assert whole - divided == 2 * model.expert_parameters * 7 / 8


def test_activations_are_those_of_korthikanti():
    """Equations 1, 2 and 4 and section 5: bytes of a layer with 16-bit activations, dropout and stored scores."""
    s, b, h, a, t = 2048, 4, 6144, 64, 8
    model = TransformerModel(h, 48, a, s, 51200, flash=False, dropout=True)
    layer = s * b * h

    def activations(**fields):
        return memory_use(model, TrainingLayout(b, b, **fields)).activations / 48

    assert activations(recompute="none") == pytest.approx(layer * (34 + 5 * a * s / h))
    assert activations(recompute="none", tensor=t) == pytest.approx(
        layer * (10 + 24 / t + 5 * a * s / (h * t))
    )
    divided = {"tensor": t, "sequence_parallel": True}
    assert activations(recompute="none", **divided) == pytest.approx(
        layer / t * (34 + 5 * a * s / h)
    )
    assert activations(recompute="selective", **divided) == pytest.approx(layer * 34 / t)
    assert activations(recompute="full") == pytest.approx(2 * layer)


def test_a_pipeline_keeps_as_many_micro_batches_as_stages():
    model = find_model("gpt3-175b")
    few, many = (
        memory_use(model, TrainingLayout(batch, pipeline=8)).activations for batch in (4, 64)
    )
    assert many == 2 * few
    chunks = memory_use(model, TrainingLayout(64, pipeline=8, interleave=3)).activations
    assert chunks == pytest.approx(many * (1 + 7 / 24))
