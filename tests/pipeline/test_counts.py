"""Counts of compilation: kernels, compilations, collectives, bytes; stage files, logs, and the
cache on disk."""

from __future__ import annotations

import gc
import logging
import subprocess
import textwrap

import numpy as np
import pytest

import weft
from tests.harness.processes import ROOT, run_python
from weft import lax, nn, numpy as wnp, random
from weft._engine.backends.cpu import buffer
from weft._engine.util.config import Override
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

X = np.linspace(-1, 1, 64 * 256, dtype=np.float32).reshape(64, 256)
ONES = np.ones(256, np.float32)
W = np.full((256, 128), 0.01, np.float32)


def mesh() -> Mesh:
    return Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))


def compiled(f, *args, **options):
    return weft.jit(f, **options).lower(*args).compile()


# ---- kernels


def chain(x):
    for _ in range(5):
        x = wnp.sin(x) * 0.5
    return x


def layer_norm(x, gain, bias):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * gain + bias


def adam(p, g, m, v, t):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / (1 - 0.9**t)) / (wnp.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v


def attention(q, k, v):
    scores = wnp.einsum("bthd,bshd->bhts", q, k) * 0.125
    scores = wnp.where(wnp.tril(wnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return wnp.einsum("bhts,bshd->bthd", nn.softmax(scores), v)


def transformer_layer(x, w_qkv, w_out, w_up, b_up, w_down, b_down):
    batch, time, width = x.shape
    one, zero = wnp.ones(width), wnp.zeros(width)
    qkv = wnp.split(
        (layer_norm(x, one, zero) @ w_qkv).reshape(batch, time, 4, 3 * width // 4), 3, -1
    )
    x = x + attention(*qkv).reshape(batch, time, width) @ w_out
    return x + nn.gelu(layer_norm(x, one, zero) @ w_up + b_up) @ w_down + b_down


def small(*shape):
    return np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape) / 4


@pytest.mark.parametrize(
    "f, args, kernels, matmuls",
    [
        (chain, (X,), 1, 0),
        (nn.softmax, (X,), 1, 0),
        (layer_norm, (X, ONES, ONES), 1, 0),
        (lambda x, w, b: nn.relu(x @ w + b), (X, W, ONES[:128]), 0, 1),
        (attention, (small(2, 32, 4, 16),) * 3, 1, 2),
        (
            transformer_layer,
            (
                small(2, 32, 64),
                small(64, 192),
                small(64, 64),
                small(64, 256),
                small(256),
                small(256, 64),
                small(64),
            ),
            3,
            6,
        ),
        (adam, (X, X, X, X * X, 3.0), 1, 0),
        (lambda x: (x.sum(), (x * x).sum()), (X,), 1, 0),
        (lambda x: x.T.reshape(-1)[::2] + 1, (X,), 1, 0),
        (lambda x: wnp.cumsum(x, 1), (X,), 1, 0),
        (
            wnp.cumsum,
            (small(1 << 18),),
            1,
            0,
        ),  # writes a block of one run, finds the total of one of the next
    ],
    ids=[
        "ten elementwise ops",
        "softmax",
        "layer norm",
        "MLP layer",
        "attention",
        "transformer layer",
        "Adam",
        "two sums",
        "views",
        "running sum",
        "long running sum",
    ],
)
def test_kernels(f, args, kernels, matmuls):
    scheduled = compiled(f, *args).stages.scheduled
    assert (scheduled.kernel_count, scheduled.gemm_count) == (kernels, matmuls)
    got = weft.jit(f)(*args)
    with Override(backend="reference"):
        want = weft.jit(lambda *xs: f(*xs))(*args)
    for g, w in zip(weft.tree.leaves(got), weft.tree.leaves(want)):
        summed = (
            0 if np.ndim(g) else np.finfo(np.float32).eps * np.abs(args[0]).sum()
        )  # another order of terms that may cancel
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=max(2e-5, summed))


def test_equal_layers_share_their_kernels():
    def layers(x, w):
        for _ in range(6):
            x = nn.softmax(x @ w)
        return x

    executable = compiled(layers, X[:, :64], W[:64, :64]).runtime_executable()
    assert executable.stages.scheduled.gemm_count == 6
    assert executable.loaded.native.kernel_count == 1 < executable.kernel_count == 6


# ---- compilations


def compilations(caplog) -> list[str]:
    return [
        r.getMessage() for r in caplog.records if r.getMessage().startswith("Finished compilation")
    ]


def test_equal_types_compile_once_and_other_types_again(caplog):
    traces = []

    @weft.jit
    def f(x, scale):
        traces.append(x.shape)
        return x * scale

    with weft.log_compiles(True), caplog.at_level(logging.WARNING, "weft"):
        for fresh in (wnp.ones(5), wnp.zeros(5), np.ones(5, np.float32)):
            f(fresh, 2.0)
        f(wnp.ones(5), 3.0)
        assert len(compilations(caplog)) == len(traces) == 1
        f(wnp.ones(6), 2.0)
        f(wnp.ones(6, wnp.int32), 2.0)
        assert len(compilations(caplog)) == len(traces) == 3
        assert (
            "jit(f)" in compilations(caplog)[0]
            and "kernels: 1, collectives: 0" in compilations(caplog)[0]
        )


def test_another_layout_compiles_again_without_tracing_again(caplog):
    traces = []

    @weft.jit
    def f(x):
        traces.append(1)
        return x + 1

    x = wnp.ones((8, 8))
    with weft.log_compiles(True), caplog.at_level(logging.WARNING, "weft"):
        for spec in (P("x"), P("x"), P(None, "y"), P("x")):
            f(weft.device_put(x, NamedSharding(mesh(), spec)))
    assert len(compilations(caplog)) == 2 and len(traces) == 1


def test_log_by_the_older_name_of_the_setting(caplog):
    with caplog.at_level(logging.WARNING, "weft"):
        weft.jit(lambda x: x * 7)(wnp.ones(3))
        assert not compilations(caplog)
        weft.config.update("jax_log_compiles", True)
        try:
            weft.jit(lambda x: x * 9)(wnp.ones(3))
        finally:
            weft.config.update("jax_log_compiles", False)
    assert len(compilations(caplog)) == 1


# ---- other processes

PROGRAM = """
    import weft, weft.numpy as wnp
    def f(x, w):
        return wnp.tanh(x @ w).sum(1)
    jitted = weft.jit(f)
    native = jitted.lower(wnp.ones((8, 64)), wnp.ones((64, 8))).compile().runtime_executable().loaded.native
    print(native.kernel_count, native.kernel_count - native.from_disk)
    print(jitted(wnp.ones((8, 64)), wnp.ones((64, 8))).sum())
"""


def run_program(program: str, **variables: str) -> subprocess.CompletedProcess:
    done = run_python("-c", textwrap.dedent(program), cwd=ROOT, **variables)
    done.check_returncode()
    return done


def test_a_second_process_compiles_nothing(tmp_path):
    first, second = (
        run_program(PROGRAM, WEFT_CACHE_DIR=str(tmp_path)).stdout.split() for _ in range(2)
    )
    kernels = int(first[0])
    assert kernels >= 1 and int(first[1]) == kernels
    assert int(second[0]) == kernels and int(second[1]) == 0
    assert first[2] == second[2]


def test_a_damaged_cache_is_compiled_anew(tmp_path):
    first = run_program(PROGRAM, WEFT_CACHE_DIR=str(tmp_path)).stdout.split()
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    again = run_program(PROGRAM, WEFT_CACHE_DIR=str(tmp_path)).stdout.split()
    assert int(again[1]) == int(first[0]) and again[2] == first[2]


def test_the_environment_turns_the_log_on_and_dumps_stages(tmp_path):
    done = run_program(PROGRAM, JAX_LOG_COMPILES="1", WEFT_DUMP=str(tmp_path), WEFT_VERIFY="1")
    assert "Finished compilation of jit(f)" in done.stderr
    folder = min({p.parent for p in tmp_path.rglob("*jit_f*/*.txt")})
    names = sorted(p.name for p in folder.iterdir())
    assert [int(n[:2]) for n in names] == list(range(len(names))) and len(names) >= 4
    assert any("schedule" in n for n in names) and all(
        (folder / n).read_text().strip() for n in names
    )
    assert "tanh" in (folder / names[0]).read_text()


def test_dumps_of_a_partitioned_program_show_its_stages(tmp_path):
    x = weft.device_put(wnp.ones((8, 8)), NamedSharding(mesh(), P("x", "y")))
    with Override(dump=str(tmp_path)):
        weft.jit(lambda x: (x @ x).sum())(x)
    names = [p.name[3:-4] for p in sorted(tmp_path.rglob("*.txt"))]
    for stage in ("partition", "stack", "schedule"):
        assert any(stage in n for n in names), names
    [partition] = list(tmp_path.rglob("*_partition.txt"))
    assert "psum" in partition.read_text()


def test_processes_write_the_same_kernels(tmp_path):
    for number in range(5):  # objects at other addresses are ordered differently in sets
        run_program(
            f"""
            other = [object() for _ in range({number * 700})]
            import weft
            weft.jit(lambda k: weft.random.gamma(k, 2.0, (100,))).lower(weft.random.key(0)).compile().runtime_executable()
        """,
            WEFT_DUMP=str(tmp_path / str(number)),
            WEFT_CACHE_DIR="off",
        )
    texts = [
        [p.read_text() for p in sorted(folder.rglob("*.txt"))]
        for folder in sorted(tmp_path.iterdir())
    ]
    assert texts[0] and all(text == texts[0] for text in texts)


# ---- costs and memory


def test_cost_analysis_counts_the_program_of_one_device():
    x, w = wnp.ones((64, 32)), wnp.ones((32, 16))
    assert compiled(lambda x, w: x @ w, x, w).cost_analysis()["flops"] == 2 * 64 * 32 * 16
    rows = weft.device_put(x, NamedSharding(mesh(), P("x")))
    cost = compiled(lambda x, w: x @ w, rows, w).cost_analysis()
    assert cost["flops"] == 2 * 16 * 32 * 16 and cost["bytes accessed"] == 4 * (
        16 * 32 + 32 * 16 + 16 * 16
    )
    assert compiled(lambda x: wnp.sin(x), x).cost_analysis()["transcendentals"] == 64 * 32


def test_reports_of_the_backend_replace_estimates(monkeypatch):
    executable = compiled(lambda x: x + 1, np.ones(4, np.float32))
    kind = type(executable.runtime_executable().loaded)
    monkeypatch.setattr(kind, "cost", lambda self: {"flops": 7.0})
    monkeypatch.setattr(kind, "memory", lambda self: {"temp_size_in_bytes": 5})
    assert executable.cost_analysis() == {"flops": 7.0}
    assert executable.memory_analysis().temp_size_in_bytes == 5


def test_memory_analysis_is_that_of_one_device():
    x = weft.device_put(wnp.ones((64, 256)), NamedSharding(mesh(), P("x", "y")))
    memory = compiled(lambda x: x + 1, x).memory_analysis()
    assert (
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
    ) == (8192, 8192, 0)
    assert (memory.alias_size_in_bytes, memory.peak_memory_in_bytes) == (0, 16384)
    donated = compiled(lambda x: x + 1, x, donate_argnums=0).memory_analysis()
    assert (donated.alias_size_in_bytes, donated.peak_memory_in_bytes) == (8192, 8192)


def test_donation_reuses_the_memory():
    n = 1 << 16
    step = weft.jit(lambda p, g: p - 0.1 * g, donate_argnums=0)
    plain = weft.jit(lambda p, g: p - 0.1 * g)
    for f, extra in ((plain, 4 * n), (step, 0)):
        p, g = wnp.ones(n), wnp.ones(n)
        f(wnp.ones(n), g).block_until_ready()  # compiled
        address = np.asarray(p).ctypes.data
        gc.collect()  # from here on nothing else is freed
        before = buffer.allocated_bytes()
        buffer.reset_peak()
        out = f(p, g)
        assert buffer.peak_bytes() - before == extra
        assert (np.asarray(out).ctypes.data == address) is (extra == 0)


# ---- random numbers


@pytest.mark.parametrize("shape, names", [((8,), "x"), ((4, 2), "xy"), ((2, 2, 2), "xyz")], ids=str)
@pytest.mark.parametrize(
    "draw",
    [
        lambda k: random.bits(k, (16, 8, 24)),
        lambda k: random.uniform(k, (16, 8, 24)),
        lambda k: random.normal(k, (16, 8, 24)),
        lambda k: random.randint(k, (16, 8, 24), 0, 1000),
        lambda k: random.bernoulli(k, 0.3, (16, 8, 24)),
        lambda k: random.gumbel(k, (16, 8, 24)),
        lambda k: random.exponential(k, (16, 8, 24)),
        lambda k: random.truncated_normal(k, -1.0, 2.0, (16, 8, 24)),
        lambda k: random.normal(random.fold_in(random.split(k)[1], 7), (16, 8, 24)),
    ],
    ids=[
        "bits",
        "uniform",
        "normal",
        "randint",
        "bernoulli",
        "gumbel",
        "exponential",
        "truncated_normal",
        "derived key",
    ],
)
def test_random_numbers_ignore_layout_without_communication(draw, shape, names):
    key, grid = random.key(42), Mesh(np.array(weft.devices()).reshape(shape), tuple(names))
    want = np.asarray(weft.jit(draw)(key))
    for spec in (P(*names), P(None, *names[:2]), P(tuple(names)), P(*reversed(names))):
        if any(
            n
            % np.prod(
                [grid.shape[a] for a in (e if isinstance(e, tuple) else (e,)) if a], dtype=int
            )
            for n, e in zip((16, 8, 24), spec)
        ):
            continue
        sharded = weft.jit(draw, out_shardings=NamedSharding(grid, spec))
        assert sharded.lower(key).compile().stages.collectives == []
        got = sharded(key)
        assert got.sharding.spec == spec
        np.testing.assert_array_equal(np.asarray(got).view(np.uint8), want.view(np.uint8))


def mlp_loss(params, x):
    for w in params:
        x = wnp.tanh(x @ w)
    return (x * x).sum()


ACTIVATION, SQUARE = 4 * 128 * 256, np.full((256, 256), 0.01, np.float32)
WIDE = np.ones((128, 256), np.float32)


@pytest.mark.parametrize(
    "f, args",
    [
        (chain, (WIDE,)),
        (nn.softmax, (WIDE,)),
        (adam, (WIDE,) * 4 + (3.0,)),
        (lambda w, x: wnp.tanh(x @ w), (SQUARE, WIDE)),
    ],
    ids=["ten elementwise ops", "softmax", "Adam", "MLP layer"],
)
def test_what_is_one_kernel_needs_no_memory_of_its_own(f, args):
    assert compiled(f, *args).memory_analysis().temp_size_in_bytes == 0


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_deep_networks_hold_few_activations(layers):
    args = [SQUARE] * layers, WIDE
    assert compiled(mlp_loss, *args).memory_analysis().temp_size_in_bytes == 2 * ACTIVATION
    assert (
        compiled(weft.grad(mlp_loss), *args).memory_analysis().temp_size_in_bytes
        == layers * ACTIVATION
    )


def test_a_loop_keeps_one_state_whatever_its_length():
    def state(length):
        f = lambda w, x: lax.scan(lambda c, _: (wnp.tanh(c @ w), None), x, length=length)[0]
        return compiled(f, SQUARE, WIDE).memory_analysis().temp_size_in_bytes

    assert state(3) == state(50) == ACTIVATION
