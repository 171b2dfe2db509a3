"""Random programs of one device under shard_map: eager, compiled, differentiated, mapped, against a model of eight devices."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.control import device_programs
from weft import lax
from weft.sharding import PartitionSpec as P, make_mesh

SEEDS = range(12)
MORE = range(100, 140)


@pytest.fixture(scope="module")
def mesh():
    return make_mesh((4, 2), ("i", "j"))


def programs(mesh, seed, check):
    steps = device_programs.make(seed)
    mapped, grads = device_programs.whole(weft, wnp, lax, mesh, P, steps, check_vma=check)
    return steps, mapped, grads, device_programs.inputs(seed)


def assert_close(got, expected):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=2e-4, atol=2e-4 * max(1, np.abs(b).max()))


@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("seed", SEEDS)
def test_values_are_those_of_the_devices(mesh, seed, check):
    steps, mapped, _, args = programs(mesh, seed, check)
    expected = device_programs.on_devices(steps, *[a.astype(np.float64) for a in args])
    assert_close(weft.jit(mapped)(*args), expected)
    if check:
        assert_close(mapped(*args), expected)


@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_slopes(mesh, seed, check):
    steps, _, grads, args = programs(mesh, seed, check)
    a, b = device_programs.weights(seed)
    rng = np.random.default_rng(seed)

    def total(*xs):
        rows, mean = device_programs.on_devices(steps, *xs)
        return (rows * a).sum() + (mean * b).sum()

    gradients = weft.jit(grads)(a, b, *args)
    wide = [x.astype(np.float64) for x in args]
    for k, grad in enumerate(gradients):
        along = rng.standard_normal(wide[k].shape)
        at = lambda t, k=k, along=along: total(*wide[:k], wide[k] + t * along, *wide[k + 1 :])
        slope = (at(1e-5) - at(-1e-5)) / 2e-5
        got = (np.asarray(grad, np.float64) * along).sum()
        assert got == pytest.approx(slope, rel=2e-3, abs=2e-3 * max(1, float(np.abs(grad).max())))


@pytest.mark.parametrize("seed", range(4))
def test_forward_and_reverse_agree_eagerly(mesh, seed):
    _, mapped, grads, args = programs(mesh, seed, True)
    a, b = device_programs.weights(seed)
    tangents = [
        np.random.default_rng(k).standard_normal(x.shape).astype(np.float32)
        for k, x in enumerate(args)
    ]
    _, (t_rows, t_mean) = weft.jvp(mapped, tuple(args), tuple(tangents))
    forward = float((np.asarray(t_rows) * a).sum() + (np.asarray(t_mean) * b).sum())
    reverse = sum(float((np.asarray(g) * t).sum()) for g, t in zip(grads(a, b, *args), tangents))
    assert forward == pytest.approx(reverse, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dims", [(0, None, None), (None, 1, 0), (2, 0, None)], ids=str)
def test_mapped_programs_are_a_loop(mesh, seed, dims):
    _, mapped, _, args = programs(mesh, seed, True)
    rows = [[x * (1 + 0.1 * k) for k in range(3)] for x in args]
    batched = [x if d is None else np.stack(r, d) for x, r, d in zip(args, rows, dims)]
    got = weft.jit(weft.vmap(mapped, in_axes=dims))(*batched)
    for k in range(3):
        one = [x if d is None else r[k] for x, r, d in zip(args, rows, dims)]
        assert_close([g[k] for g in got], weft.jit(mapped)(*one))


@pytest.mark.parametrize("seed", range(4))
def test_recomputed_gradients_are_the_same(mesh, seed):
    steps, mapped, grads, args = programs(mesh, seed, True)
    a, b = device_programs.weights(seed)
    outside = weft.checkpoint(mapped)
    inside = weft.shard_map(
        weft.checkpoint(device_programs.body(steps, wnp, lax)),
        mesh=mesh,
        in_specs=(P("i", "j"), P("i"), P()),
        out_specs=(P(("i", "j")), P()),
    )
    expected = weft.jit(grads)(a, b, *args)
    for again in (outside, inside):
        loss = lambda *xs, again=again: (lambda r: (r[0] * a).sum() + (r[1] * b).sum())(again(*xs))
        assert_close(weft.jit(weft.grad(loss, (0, 1, 2)))(*args), [np.asarray(g) for g in expected])


@pytest.mark.oracle
def test_the_peer_agrees(mesh, tmp_path):
    python = os.environ.get("WEFT_ORACLE_PYTHON")
    if not python:
        pytest.skip("WEFT_ORACLE_PYTHON is not set")
    target = tmp_path / "found.json"
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
    }
    seeds = [*SEEDS, *MORE]
    command = [python, device_programs.__file__, json.dumps(seeds), str(target)]
    environment["PYTHONPATH"] = str(Path(device_programs.__file__).parents[2])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    references = json.loads(target.read_text())
    for seed in seeds:
        for check in (True, False):
            _, mapped, grads, args = programs(mesh, seed, check)
            values = [
                *weft.jit(mapped)(*args),
                *weft.jit(grads)(*device_programs.weights(seed), *args),
            ]
            assert_close(values, [np.asarray(v) for v in references[f"{seed} {check}"]])
