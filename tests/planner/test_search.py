"""The search: considered plans, rejected plans with reasons, and the ranking."""

import math

import pytest

import weft
from weft._engine.partition.auto.machine_rates import MACHINES, Machine
from weft._engine.planner.api import as_model, plan
from weft._engine.planner.cluster import Cluster
from weft._engine.planner.layout import RECOMPUTE, TrainingLayout, TrainingPrecision
from weft._engine.planner.memory import memory_use
from weft._engine.planner.named_models import MODELS, find_model
from weft._engine.planner.search import (
    SEARCH_OVERLAP,
    USABLE_MEMORY,
    SearchRequest,
    divisors,
    search,
)
from weft._engine.planner.step_time import step_time
from weft._engine.util.record import replace


@pytest.mark.parametrize(
    "model, cluster, batch",
    [
        ("llama3-70b", "h100:64", 512),
        ("gpt3-175b", "a100:1024", 1536),
        ("mixtral-8x7b", "h100:64", 1024),
        ("deepseek-v3", "h100:2048", 8192),
        ("llama3-8b", "tpu-v5e:256", 512),
        ("llama3-405b", "tpu-v5p:4096", 2048),
        ("qwen3-32b", "tpu-v6e:2x256", 1024),
        ("palm-540b", "tpu-v4:2x3072", 6144),
    ],
)
def test_plans_fill_the_cluster_and_fit(model, cluster, batch):
    where = Cluster.parse(cluster)
    plans = plan(model, cluster=where, batch=batch)
    assert 1 <= len(plans) <= 5
    for one in plans:
        layout = one.layout
        assert layout.devices == where.devices == math.prod(one.mesh_shape.values())
        assert layout.batch == batch and layout.tensor <= where.per_node
        assert one.memory.total <= USABLE_MEMORY * where.machine.memory
        assert one.memory == memory_use(one.model, layout)
        assert one.time == step_time(one.model, layout, where.machine)
        assert 0.1 < one.mfu < 0.75
    assert [one.seconds for one in plans] == sorted(one.seconds for one in plans)


def test_16384_devices_need_a_bounded_number_of_candidates():
    counts = {
        devices: plan("llama3-405b", cluster=f"h100:{devices}", batch=2048, top=1)[0].summary
        for devices in (1024, 4096, 16384)
    }
    assert all(summary.considered < 5000 for summary in counts.values())
    experts = plan("deepseek-v3", cluster="h100:16384", batch=16384, top=1)[0].summary
    assert 1000 < experts.considered < 20000


def test_the_first_plan_is_the_best_of_a_brute_force_search():
    """All layouts of 8 devices, dominated ones too."""
    model, cluster = find_model("llama3-8b"), Cluster.parse("h100:8")
    limit = USABLE_MEMORY * cluster.machine.memory
    best = math.inf
    for data, tensor, pipeline, context in _splits(8):
        for micro in (1, 2, 4, 8, 16):
            if 64 % (data * micro):
                continue
            for chunks in (
                (1, 2, 4, 8) if pipeline > 1 and 64 // data // micro % pipeline == 0 else (1,)
            ):
                for zero in (0, 1, 2, 3) if pipeline == 1 else (0, 1):
                    for recompute in RECOMPUTE:
                        layout = TrainingLayout(
                            64,
                            micro,
                            data,
                            tensor,
                            pipeline,
                            context,
                            1,
                            chunks,
                            zero,
                            recompute,
                            tensor > 1,
                            TrainingPrecision(),
                            SEARCH_OVERLAP,
                        )
                        if memory_use(model, layout).total <= limit:
                            best = min(best, step_time(model, layout, cluster.machine).seconds)
    assert plan(model, cluster=cluster, batch=64)[0].seconds == pytest.approx(best)


def _splits(devices):
    sizes = divisors(devices)
    return [
        (devices // (t * p * c), t, p, c)
        for t in sizes
        for p in sizes
        for c in sizes
        if devices % (t * p * c) == 0
    ]


def test_less_memory_is_never_faster():
    times = [
        plan("llama3-8b", cluster="h100:16", batch=64, memory=gigabytes * 1e9)[0].seconds
        for gigabytes in (200, 80, 40, 25)
    ]
    assert times == sorted(times) and times[0] < times[-1]


def test_more_bandwidth_is_never_slower():
    h100 = MACHINES["h100"]
    times = [
        plan("llama3-70b", cluster=Cluster(machine, 8), batch=512)[0].seconds
        for machine in (
            replace(h100, network_bandwidth=1e9),
            replace(h100, network_bandwidth=50e9),
            h100,
            replace(h100, link_bandwidth=900e9),
        )
    ]
    assert times == sorted(times, reverse=True) and times[0] > times[1] > times[3]


def test_a_slow_network_keeps_gradients_whole_over_it():
    """With little bandwidth between nodes, the pipeline crosses them and the data axis shrinks."""
    slow = replace(MACHINES["h100"], network_bandwidth=2e9)
    fast = plan("llama3-70b", cluster=Cluster(MACHINES["h100"], 8), batch=512)[0]
    best = plan("llama3-70b", cluster=Cluster(slow, 8), batch=512)[0]
    assert best.layout.pipeline >= fast.layout.pipeline and best.layout.data <= fast.layout.data


def test_long_sequences_use_the_context_axis():
    long = find_model("llama3-8b", seq=262144)
    best = plan(long, cluster="h100:64", batch=16)[0]
    assert best.layout.context > 1


def test_experts_are_divided_where_they_do_not_fit_whole():
    best = plan("deepseek-v3", cluster="h100:2048", batch=8192)[0]
    assert best.layout.expert > 1 and "experts over" in str(best)


def test_rejected_classes_state_the_smallest_peak():
    rejected = plan("llama3-405b", cluster="h100:16384", batch=2048)[0].summary.rejected
    texts = [str(one) for one in rejected]
    assert any(
        text.startswith("parameters over 16 devices: does not fit: smallest peak ")
        for text in texts
    )
    assert "tensor above 8: the tensor axis does not leave a node" in texts
    assert "pipeline above 126: there are 126 layers" in texts
    assert "data axes that do not divide the batch: the batch is 2048" in texts
    assert all(one.count > 0 for one in rejected)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ("llama3-70b", "h100:8", 8),
            r"fits in 79.0 GB a device. The smallest possible peak is 1\d\d.\d GB \(.*tensor 8",
        ),
        (("llama3-405b", "h100:1", 1), r"on 1 node of 1 x h100 fits .* is [78].\d TB \(one device"),
        (("llama3-8b", "h100:64", 0), "batch = 0, top = 5. Both are at least 1."),
        (("llama-3-70b", "h100:64", 64), r"unknown model 'llama-3-70b'. Similar names: llama3-70b"),
        (("llama3-8b", "b200:8", 64), "unknown machine 'b200'. The presets are cpu, a100"),
        (("llama3-8b", "h100", 64), "'h100' does not say how many devices"),
        (("llama3-8b", "h100:0", 64), "0 devices do not fill nodes"),
        (("llama3-8b", "h100:12", 64), "12 devices do not fill nodes of 8 x h100"),
        (("llama3-8b", "h100:2x16", 64), "per_node = 16, but the links of 'h100' connect 8"),
        (("gpt3-125m", "h100:1024", 7), r"trains 7 sequences a step \(.*the batch is 7"),
    ],
)
def test_impossible_requests_are_explained(arguments, message):
    model, cluster, batch = arguments
    with pytest.raises(ValueError, match=message):
        plan(model, cluster=cluster, batch=batch)


def test_memory_has_to_be_positive():
    with pytest.raises(ValueError, match="memory = -1"):
        plan("llama3-8b", cluster="h100:8", batch=64, memory=-1)


def test_the_smallest_possible_peak_is_possible():
    """A search with that much memory succeeds, one with less fails."""
    request = SearchRequest(
        find_model("llama3-70b"), Cluster.parse("h100:8"), 8, 1e9, TrainingPrecision()
    )
    with pytest.raises(ValueError, match="smallest possible peak is ") as error:
        search(request, 1)
    peak = float(str(error.value).partition("peak is ")[2].partition(" GB")[0]) * 1e9
    best = search(replace(request, memory=1.001 * peak), 1)[0]
    assert best.memory.total == pytest.approx(peak, rel=1e-3)
    with pytest.raises(ValueError, match="fits in"):
        search(replace(request, memory=0.999 * peak), 1)


def test_user_defined_machines():
    mine = Machine(
        "mine",
        {"bfloat16": 1e15},
        4e12,
        192e9,
        900e9,
        devices_per_node=72,
        network_bandwidth=3.6e12,
    )
    best = weft.auto.plan("llama3-70b", cluster=weft.auto.Cluster(mine, nodes=2), batch=576)[0]
    assert best.layout.devices == 144 and "2 nodes of 72 x mine" in str(best)


def test_a_cluster_needs_a_machine():
    with pytest.raises(TypeError, match=r"Use weft.auto.find_machine\('h100'\)"):
        Cluster("h100", 8)
    with pytest.raises(ValueError, match="nodes = 0"):
        Cluster(MACHINES["h100"], 0)


@pytest.mark.parametrize("name", MODELS)
def test_every_named_model_has_the_parameters_of_its_name(name):
    stated = name.rpartition("-")[2]
    known = {
        "8x7b": 46.7e9,
        "8x22b": 140.6e9,
        "lite": 15.7e9,
        "v3": 671e9,
        "a3b": 30.5e9,
        "a22b": 235e9,
    }
    units = {"b": 1e9, "m": 1e6, "t": 1e12}
    parameters = known.get(stated) or float(stated[:-1]) * units[stated[-1]]
    assert MODELS[name].parameters == pytest.approx(
        parameters, rel=0.08 if "-" in name else 0.1
    ) or (
        name in ("llama3-1b", "llama3-3b", "qwen2.5-7b")  # 1.24, 3.21 and 7.61 billion
    )


def test_names_are_found_in_any_case():
    assert find_model("Llama3-8B") is MODELS["llama3-8b"]


def test_other_objects_are_no_models():
    with pytest.raises(TypeError, match="int does not describe a model"):
        as_model(7)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"data": 0}, "data = 0"),
        ({"zero": 4}, "zero = 4"),
        ({"recompute": "some"}, "recompute = 'some'"),
        ({"data": 3}, "batch = 8 is not a multiple of data"),
        ({"data": 4, "expert": 3}, "expert = 3 does not divide data"),
    ],
)
def test_impossible_layouts_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TrainingLayout(8, **fields)
