"""Laws of the step time: parts, monotonicity, collectives and pipelines."""

import pytest

from weft._engine.partition.auto.machine_rates import MACHINES, collective_seconds
from weft._engine.planner.layer_cost import CONTENTION, layer_cost
from weft._engine.planner.layout import Overlap, TrainingLayout, TrainingPrecision
from weft._engine.planner.named_models import find_model
from weft._engine.planner.step_time import PART_NAMES, stage_layers, step_time
from weft._engine.planner.transformer import TransformerModel
from weft._engine.util.record import replace

H100 = MACHINES["h100"]
DENSE = find_model("llama3-8b")
EXPERTS = find_model("mixtral-8x7b")
LAYOUTS = {
    "one device": TrainingLayout(8),
    "zero": TrainingLayout(64, data=16, zero=1),
    "fsdp": TrainingLayout(64, data=16, zero=3, overlap=Overlap(data=0.9)),
    "tensor": TrainingLayout(64, data=4, tensor=8, sequence_parallel=True, recompute="selective"),
    "pipeline": TrainingLayout(64, data=2, tensor=2, pipeline=4, interleave=2, zero=1),
    "context": TrainingLayout(64, data=4, context=4, tensor=2, recompute="none"),
    "far context": TrainingLayout(64, data=1, context=8, tensor=8, recompute="none"),
    "sends": TrainingLayout(64, pipeline=8, overlap=Overlap(pipeline=0.0)),
    "float8": TrainingLayout(64, data=8, precision=TrainingPrecision("float8_e4m3fn")),
}
EXPERT_LAYOUTS = {
    "experts whole": TrainingLayout(64, data=16, zero=1),
    "experts divided": TrainingLayout(64, data=16, expert=8, zero=1),
    "experts and context": TrainingLayout(
        64, data=4, context=2, tensor=2, expert=4, zero=1, sequence_parallel=True
    ),
}
CASES = {
    **{name: (DENSE, layout) for name, layout in LAYOUTS.items()},
    **{name: (EXPERTS, layout) for name, layout in EXPERT_LAYOUTS.items()},
}


def seconds(model, layout, machine=H100):
    return step_time(model, layout, machine).seconds


@pytest.mark.parametrize("case", CASES)
def test_the_total_is_the_sum_of_parts(case):
    time = step_time(*CASES[case], H100)
    assert set(time.parts) == set(PART_NAMES)
    assert min(time.parts.values()) >= 0 and time.hidden >= 0
    assert time.seconds == pytest.approx(sum(time.parts.values()))
    assert time.parts[time.bottleneck] == max(time.parts.values())
    assert 0 < time.forward_share < 0.5


@pytest.mark.parametrize(
    "field", ["memory_bandwidth", "link_bandwidth", "network_bandwidth", "matmul_efficiency"]
)
@pytest.mark.parametrize("case", CASES)
def test_more_bandwidth_is_never_slower(case, field):
    faster = replace(H100, **{field: getattr(H100, field) * 1.3})
    assert seconds(*CASES[case], faster) <= seconds(*CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_higher_rates_and_lower_latencies_are_never_slower(case):
    rates = {dtype: 2 * rate for dtype, rate in H100.peak_flops}
    assert seconds(*CASES[case], replace(H100, peak_flops=rates)) < seconds(*CASES[case])
    quick = replace(H100, link_latency=0, network_latency=0, launch=0)
    assert seconds(*CASES[case], quick) <= seconds(*CASES[case])


@pytest.mark.parametrize("field", ["data", "tensor", "pipeline"])
@pytest.mark.parametrize("case", CASES)
def test_more_overlap_is_never_slower(case, field):
    model, layout = CASES[case]
    times = [
        seconds(model, replace(layout, overlap=Overlap(**{field: share})))
        for share in (0.0, 0.5, 1.0)
    ]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("case", CASES)
def test_a_larger_batch_takes_longer_and_gives_more_tokens(case):
    model, layout = CASES[case]
    larger = replace(layout, batch=2 * layout.batch)
    assert seconds(model, layout) < seconds(model, larger) <= 2 * seconds(model, layout)


def test_recomputation_costs_a_forward_pass_at_most():
    none, selective, full = (
        step_time(DENSE, TrainingLayout(8, recompute=kind), H100)
        for kind in ("none", "selective", "full")
    )
    assert none.recompute == 0 < selective.recompute < full.recompute
    assert full.recompute == pytest.approx(full.matmul / 3 + full.elementwise / 3 + _forward(full))


def _forward(time):
    """Seconds of attention of the forward pass: the backward pass of fused attention takes 2.5 times as long."""
    return time.attention / 3.5


def test_hidden_collectives_still_cost_their_contention():
    layout = TrainingLayout(64, data=16, zero=3)
    exposed = step_time(DENSE, layout, H100)
    hidden = step_time(DENSE, replace(layout, overlap=Overlap(data=1.0)), H100)
    assert hidden.data == pytest.approx(CONTENTION * exposed.data)
    assert hidden.data + hidden.hidden == pytest.approx(exposed.data)


def test_collectives_hide_behind_no_more_than_the_computation():
    slow = replace(H100, network_bandwidth=1e9)
    time = step_time(DENSE, TrainingLayout(64, data=64, zero=3, overlap=Overlap(data=1.0)), slow)
    assert time.data > time.matmul


def test_zero_stages_send_what_they_must():
    """Stage 0 reduces and gathers 32-bit gradients, stage 1 gathers 16-bit parameters instead, stage 3 gathers them twice."""
    parts = [step_time(DENSE, TrainingLayout(16, data=16, zero=z), H100).data for z in (0, 1, 3)]
    nbytes = DENSE.parameters * 4
    assert parts[0] == pytest.approx(collective_seconds(H100, "all_reduce", nbytes, 16), rel=0.01)
    assert parts[2] == pytest.approx(parts[0], rel=0.01) and parts[1] < 0.8 * parts[0]


def test_tensor_collectives_are_counted_per_pass():
    plain = TrainingLayout(8, tensor=8, recompute="full")
    nbytes = DENSE.seq * DENSE.hidden * 2
    one = collective_seconds(H100, "all_reduce", nbytes, 8)
    assert step_time(DENSE, plain, H100).tensor == pytest.approx(8 * 32 * 2 * 3 * one)
    stored = replace(plain, recompute="none")
    assert step_time(DENSE, stored, H100).tensor == pytest.approx(8 * 32 * 2 * 2 * one)
    divided = replace(stored, sequence_parallel=True)
    gather = collective_seconds(H100, "all_gather", nbytes, 8)
    expected = 8 * 32 * 2 * (2 * one + gather)
    assert step_time(DENSE, divided, H100).tensor == pytest.approx(expected)


def test_the_bubble_shrinks_with_chunks_and_micro_batches():
    def share(**fields):
        layout = replace(TrainingLayout(8, pipeline=4), **fields)
        time = step_time(DENSE, layout, H100)
        return time.bubble / time.seconds

    assert share() > share(interleave=2) > share(interleave=8) > 0
    assert share() > share(batch=64)


@pytest.mark.parametrize(
    "layers, pipeline, chunks, stage",
    [
        (96, 8, 1, (12, False)),
        (126, 8, 1, (16, True)),
        (126, 16, 8, (8, True)),
        (61, 16, 1, (4, False)),
        (61, 1, 1, (61, False)),
    ],
)
def test_the_longest_stage(layers, pipeline, chunks, stage):
    model = TransformerModel(64, layers, 4, 128, 1000)
    assert stage_layers(model, TrainingLayout(1, pipeline=pipeline, interleave=chunks)) == stage


def test_experts_exchange_tokens_only_where_they_are_divided():
    whole, divided, both = (step_time(EXPERTS, layout, H100) for layout in EXPERT_LAYOUTS.values())
    assert whole.expert == 0 < divided.expert
    assert divided.data < whole.data  # gradients of experts have fewer replicas
    copied = replace(EXPERT_LAYOUTS["experts and context"], sequence_parallel=False)
    assert 0 < both.expert < step_time(EXPERTS, copied, H100).expert


def test_far_context_exposes_its_exchange():
    near, far = (layer_cost(DENSE, LAYOUTS[name], H100) for name in ("context", "far context"))
    assert 0 < near.context < 0.1 * near.attention
    slow = layer_cost(DENSE, LAYOUTS["far context"], replace(H100, network_bandwidth=1e9))
    assert slow.context > slow.attention > 0 and far.context < slow.context


def test_float8_speeds_up_products_with_weights_alone():
    half = replace(LAYOUTS["float8"], precision=TrainingPrecision())
    slow, fast = step_time(DENSE, half, H100), step_time(DENSE, LAYOUTS["float8"], H100)
    assert fast.matmul == pytest.approx(slow.matmul / 2, rel=0.02)
    assert fast.attention == slow.attention and fast.elementwise > slow.elementwise


def test_short_matmuls_lose_efficiency():
    """Eight devices do not multiply eight times as fast: tiles and waves are not full."""
    small = find_model("gpt3-125m")
    one = layer_cost(small, TrainingLayout(1), H100).matmul
    twelve = layer_cost(small, TrainingLayout(1, tensor=12), H100).matmul
    assert one / 12 < twelve / 2
