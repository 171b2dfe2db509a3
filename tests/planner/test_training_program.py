"""The programs that `weft plan --verify` compiles: every layout computes the same step, and predictions fit them."""

import numpy as np
import pytest

import weft
from tests.harness.processes import run_weft
from weft._engine.planner.layout import TrainingLayout
from weft._engine.planner.memory import memory_use
from weft._engine.planner.named_models import find_model
from weft._engine.planner.training_program import training_program
from weft._engine.planner.transformer import TransformerModel
from weft._engine.planner.verification import stage_of, target_name
from weft._engine.util.record import replace
from weft.sharding import Mesh

MODEL = TransformerModel(
    64, 2, 8, 32, 128, feed_forward=96, kv_heads=4, gated=True, tied=False, name="tiny"
)
LAYOUTS = {
    "one device": TrainingLayout(8, 8),
    "zero 0": TrainingLayout(8, data=8, zero=0),
    "zero 1": TrainingLayout(8, data=8, zero=1, recompute="none"),
    "zero 3": TrainingLayout(8, data=8, zero=3, recompute="selective"),
    "zero 3, all kept": TrainingLayout(8, 2, data=4, tensor=2, zero=3, recompute="none"),
    "tensor": TrainingLayout(8, 2, data=4, tensor=2, sequence_parallel=True),
    "context": TrainingLayout(
        8, 4, data=2, context=2, tensor=2, zero=1, recompute="none", sequence_parallel=True
    ),
}


def mesh_of(layout):
    shape = layout.data, layout.context, layout.tensor
    grid = np.array(weft.devices()[: layout.devices], object).reshape(shape)
    return Mesh(grid, ("data", "context", "tensor"))


def step_of(model, layout):
    """Return the loss and a checksum of the new parameters, from the same state."""
    program = training_program(model, layout, mesh_of(layout))
    random = np.random.default_rng(0)
    values = {
        name: random.normal(0, 0.2, kind.shape) for name, kind in program.state["master"].items()
    }
    place = lambda value, kind: weft.device_put(value.astype(kind.dtype), kind.sharding)
    zeros = {name: np.zeros(value.shape) for name, value in values.items()}
    parts = {"parameters": values, "master": values, "mean": zeros, "square": zeros}
    state = {
        part: {name: place(value, program.state[part][name]) for name, value in values.items()}
        for part, values in parts.items()
    }
    tokens = place(random.integers(0, model.vocab, program.tokens.shape), program.tokens)
    new, loss = weft.jit(program.step)(state, tokens)
    means = {name: float(np.abs(np.asarray(value)).mean()) for name, value in new["mean"].items()}
    return float(loss), means


@pytest.fixture(scope="module")
def expected():
    return step_of(MODEL, LAYOUTS["one device"])


@pytest.mark.parametrize("case", [case for case in LAYOUTS if case != "one device"])
def test_all_layouts_compute_the_same_step(case, expected):
    loss, means = step_of(MODEL, LAYOUTS[case])
    assert loss == pytest.approx(expected[0], rel=5e-3) and 1 < loss < 20
    assert all(value > 0 for value in means.values())
    for name, value in means.items():
        assert value == pytest.approx(expected[1][name], rel=0.03), name


def test_other_shapes_of_layers():
    model = replace(MODEL, gated=False, tied=True, kv_heads=8)
    loss, means = step_of(model, LAYOUTS["tensor"])
    assert 1 < loss < 40 and "gate" not in means and "head" not in means


@pytest.mark.parametrize("case", LAYOUTS)
def test_the_training_state_has_the_predicted_bytes(case):
    layout = LAYOUTS[case]
    program = training_program(MODEL, layout, mesh_of(layout))
    local = lambda kind: (
        np.prod(kind.sharding.shard_shape(kind.shape)) * np.dtype(kind.dtype).itemsize
    )
    optimizer = sum(
        local(k) for part in ("master", "mean", "square") for k in program.state[part].values()
    )
    assert memory_use(MODEL, layout).optimizer == pytest.approx(optimizer, rel=0.05)


@pytest.mark.parametrize(
    "model, layout, message",
    [
        (find_model("mixtral-8x7b"), TrainingLayout(8), "experts"),
        (find_model("deepseek-v2-lite"), TrainingLayout(8), "experts, latent attention"),
        (find_model("palm-540b"), TrainingLayout(8, tensor=2), "parallel blocks, fewer heads"),
        (MODEL, TrainingLayout(8, pipeline=2), "pipelines, micro batches"),
    ],
)
def test_what_has_no_program_is_named(model, layout, message):
    with pytest.raises(NotImplementedError, match=message):
        training_program(model, layout, mesh_of(TrainingLayout(8)))


def test_the_stage_of_a_pipeline():
    best = weft.auto.plan("llama3-405b", cluster="h100:1024", batch=512)[0]
    model, layout = stage_of(best)
    assert best.layout.pipeline > 1 == layout.pipeline == layout.micro_batches
    assert model.layers == 7 and best.layout.pipeline == 16  # of 8 places; a head takes one
    assert layout.devices == 1024 // best.layout.pipeline


@pytest.mark.parametrize(
    "arguments, name",
    [
        (("a100", 4, 8), "a100:1x4"),
        (("h100", 16, 8), "h100:2x8"),
        (("v4", 64, 4096), "v4:4x4x4"),
        (("v6e", 128, 256), "v6e:8x16"),
    ],
)
def test_names_of_targets(arguments, name):
    assert target_name(*arguments) == name


def test_without_a_plugin_the_command_says_so(tmp_path):
    run = run_weft(
        *("plan", "--model", "llama3-8b", "--cluster", "h100:8", "--verify"),
        cwd=tmp_path,
        PJRT_NAMES_AND_LIBRARY_PATHS="",
    )
    assert run.returncode == 1 and "layouts considered" in run.stdout
    assert (
        "weft plan: not verified: '1x1x8' needs the PJRT plugin of the platform 'cuda'"
        in run.stderr
    )


def test_machines_without_a_plugin_are_refused():
    from weft._engine.planner.verification import verify

    best = weft.auto.plan(MODEL, cluster="cpu:1", batch=8)[0]
    with pytest.raises(NotImplementedError, match="programs for 'cpu' are not implemented"):
        verify(best)
