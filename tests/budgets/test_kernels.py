"""Kernels of typical training programs: their number, their passes over memory, and their temporary
memory."""

import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.numpy as wnp
from weft import nn
from weft._engine.ir.loops import LoopKind
from weft._engine.ir.loops_text import print_kernel
from weft._engine.ir.program import Gemm
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

ROWS, COLUMNS = 512, 768
X, ROW = np.zeros((ROWS, COLUMNS), "f4"), np.zeros(COLUMNS, "f4")
LABELS = np.zeros(ROWS, "i4")


def scheduled(function, *args):
    return weft.jit(function).lower(*args).compile().runtime_executable().stages.scheduled


def layer_norm(x, scale, bias):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale + bias


def rms_norm(x, scale):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def gradient(function):
    return lambda ct, *args: weft.vjp(function, *args)[1](ct)


def cross_entropy(x, labels):
    return -wnp.take_along_axis(nn.log_softmax(x), labels[:, None], 1).mean()


def adam(params, gradients, moments, squares):
    def one(p, g, m, v):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * m / (wnp.sqrt(v) + 1e-8), m, v

    return [one(*group) for group in zip(params, gradients, moments, squares)]


# kernels over the rows, kernels that add the parts of sums over them, and passes over a row
BUDGETS = [
    ("softmax", nn.softmax, (X,), 1, 0, 3),
    ("log_softmax", nn.log_softmax, (X,), 1, 0, 3),
    ("layer norm", layer_norm, (X, ROW, ROW), 1, 0, 3),
    ("RMS norm", rms_norm, (X, ROW), 1, 0, 2),
    ("softmax gradient", gradient(nn.softmax), (X, X), 1, 0, 3),
    ("log_softmax gradient", gradient(nn.log_softmax), (X, X), 1, 0, 3),
    ("layer norm gradient", gradient(layer_norm), (X, X, ROW, ROW), 1, 2, 3),
    ("RMS norm gradient", gradient(rms_norm), (X, X, ROW), 1, 1, 2),
    ("cross entropy gradient", weft.grad(cross_entropy), (X, LABELS), 1, 0, 3),
]


@pytest.mark.parametrize(
    "name, function, args, rows, ends, passes", BUDGETS, ids=[b[0] for b in BUDGETS]
)
def test_row_kernels(name, function, args, rows, ends, passes):
    plan = scheduled(function, *args)
    over_rows = [k for k in plan.kernels if any(b.size == X.size for b in k.bufs)]
    assert (len(over_rows), plan.kernel_count) == (rows, rows + ends)
    (kernel,) = over_rows
    row = kernel.body[0].body[-1].body
    assert sum(getattr(stmt, "kind", None) is LoopKind.VECTOR for stmt in row) == passes
    results = sum(b.nbytes for b in plan.program.slots if b.kind == "out")
    assert plan.program.arena_bytes <= results // 4


def test_an_update_is_one_kernel_for_each_group_of_parameters():
    groups = [np.zeros(s, "f4") for s in ((64, 32), (32,), (32, 48))]
    plan = scheduled(adam, *[groups] * 4)
    assert (plan.kernel_count, plan.program.arena_bytes) == (3, 0)


def test_cheap_functions_of_stored_values_are_not_stored():
    """Between a gelu layer and its gradient, two arrays of the hidden width are stored: the operand
    of gelu, and its tanh."""

    def between(h):
        y, back = weft.vjp(nn.gelu, h)
        return back(wnp.sin(y @ y.T) @ y)

    plan = scheduled(between, np.zeros((512, 512), "f4"))
    results = [[b for b in k.bufs[-4:] if b.mode == "out"] for k in plan.kernels]
    assert max(map(len, results)) <= 2


def test_a_bias_gradient_reads_what_the_matmul_reads():
    def layer(x, w, b):
        return wnp.tanh(x @ w + b)

    x, w = np.zeros((512, 256), "f4"), np.zeros((256, 256), "f4")
    plan = scheduled(gradient(layer), np.zeros((512, 256), "f4"), x, w, np.zeros(256, "f4"))
    sums = [
        k
        for k in plan.kernels
        if k.name.startswith("fused_reduce_sum") or k.name.startswith("reduce_sum")
    ]
    assert sums and all(sum(b.mode == "in" for b in k.bufs) == 1 for k in sums)


def test_hidden_width_split_runs_the_kernels_of_one_device():
    """The sum over devices is part of the matmul before it, and the split columns are one dim in its epilogue."""
    mesh = Mesh(np.array(weft.devices()[:8]).reshape(4, 2), ("a", "b"))

    def layer(x, w, b, v):
        return nn.gelu(x @ w + b) @ v

    def counts(function, *args):
        plan = scheduled(function, *args)
        assert not any("rem." in print_kernel(epilogue) for epilogue in plan.epilogues)
        return plan.kernel_count, plan.gemm_count

    args = [np.zeros(s, "f4") for s in ((64, 32), (32, 128), (128,), (128, 32))]
    specs = [P(), P(None, ("a", "b")), P(("a", "b")), P(("a", "b"))]
    split = [weft.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(args, specs)]
    assert counts(layer, *split) == counts(layer, *args) == (0, 2)
    assert (
        counts(gradient(layer), split[0], *split)
        == counts(gradient(layer), args[0], *args)
        == (2, 5)
    )


@pytest.mark.parametrize("left, right", [(("a", None), (None, "b")), (("a", "b"), ("b", None)), (("a", "b"), ("a", "b")),
                                         (("a", "b"), (None, "b")), ((None, "a"), ("a", "b"))], ids=str)  # fmt: skip
def test_a_product_of_shards_reads_them_where_they_lie(left, right):
    """No operand is gathered into one piece, however the operands are split."""
    mesh = Mesh(np.array(weft.devices()[:8]).reshape(4, 2), ("a", "b"))
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(2048, 2048)).astype("f4") for _ in range(2))
    split = [
        weft.device_put(v, NamedSharding(mesh, P(*spec))) for v, spec in ((x, left), (y, right))
    ]
    plan = scheduled(wnp.matmul, *split)
    assert (plan.kernel_count, plan.gemm_count, plan.program.arena_bytes) == (0, 1, 0)
    np.testing.assert_allclose(
        np.asarray(weft.jit(wnp.matmul)(*split)), x @ y, rtol=1e-3, atol=2e-3
    )


def test_a_recurrence_keeps_each_state_once_for_its_gradient():
    """The final state of an iteration, which the derivative of exp reads, is the initial state of
    the next, which the derivative of the product reads."""
    turns, batch, width = 16, 8, 64

    def loss(w, x):
        return lax.scan(lambda h, x: (wnp.exp(h @ w + x), None), wnp.zeros((batch, width)), x)[
            0
        ].sum()

    plan = scheduled(
        weft.grad(loss), np.zeros((width, width), "f4"), np.zeros((turns, batch, width), "f4")
    )
    row = batch * width * 4
    assert (
        plan.program.arena_bytes <= (turns + 1) * row + turns * row + row
    )  # states, cotangents, and the cotangents of one iteration


@pytest.mark.parametrize("columns, kernels", [(8, 2), (64, 1)])
def test_short_rows_are_gone_over_in_the_order_of_memory(columns, kernels):
    """Their sums are reordered afterwards; long rows are read row by row, in any order."""
    x = np.zeros((128, 64, columns), "f4")
    assert scheduled(lambda x: wnp.sin(x.sum(2)).T * 2, x).kernel_count == kernels


@pytest.mark.parametrize("columns, kernels", [(8, 2), (64, 1)])
def test_what_is_dear_is_computed_once_for_each_short_row(columns, kernels):
    row, x = np.zeros((512, 16), "f4"), np.zeros((16, 512, columns), "f4")
    assert scheduled(lambda row, x: wnp.sin(row).T[:, :, None] * x, row, x).kernel_count == kernels


def test_a_matmul_stores_rows_of_its_result_where_there_are_some():
    """The operand has 64 x 8 rows: the 8 that are neighbors in the result, and a batch of the 64."""
    a, b = np.zeros((64, 512, 8), "f4"), np.zeros((512, 8), "f4")
    (step,) = [
        s
        for s in scheduled(lambda a, b: wnp.einsum("isp,sq->iqp", a, b), a, b).program.steps
        if isinstance(s, Gemm)
    ]
    assert (step.m, step.n, [extent for extent, *_ in step.batch]) == (8, 8, [64])


def test_one_shape_of_a_value_is_stored():
    """A matmul and a later kernel read it in different shapes."""

    def both(x, y, w):
        z = (wnp.sin(x.reshape(256, 32, 2, 8)) * y).reshape(256, 32, 16)
        return z @ w, wnp.tanh(z) * z.sum()

    x = np.zeros((256, 32, 16), "f4")
    plan = scheduled(both, x, x.reshape(256, 32, 2, 8), np.zeros((16, 16), "f4"))
    assert [
        slot.nbytes
        for slot in plan.program.slots
        if slot.kind == "temp" and slot.nbytes >= x.nbytes
    ] == [x.nbytes]


def test_data_parallel_conv_kernel_gradient_copies_nothing():
    def loss(w, x):
        y = lax.conv_general_dilated(
            wnp.sin(x), w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return (wnp.tanh(y) * y).sum()

    x, w = np.zeros((16, 16, 16, 8), "f4"), np.zeros((3, 3, 8, 8), "f4")
    mesh = Mesh(np.array(weft.devices()[:8]), ("d",))
    put = lambda x, *spec: weft.device_put(x, NamedSharding(mesh, P(*spec)))
    alone, split = scheduled(weft.grad(loss), w, x), scheduled(weft.grad(loss), put(w), put(x, "d"))
    assert split.kernel_count == alone.kernel_count + 1  # which adds the devices' parts
    assert split.program.arena_bytes <= alone.program.arena_bytes + 8 * w.nbytes


@pytest.mark.parametrize("kind, width", [("max", 2), ("max", 3), ("average", 2)])
def test_disjoint_window_gradients_are_one_kernel(kind, width):
    window = (1, width, width, 1)

    def pooled(x):
        if kind == "max":
            return (lax.reduce_window(x, -np.inf, lax.max, window, window, "VALID") ** 2).sum()
        return (lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") ** 2).sum()

    schedule = scheduled(weft.grad(pooled), np.zeros((2, 24, 24, 32), "f4"))
    assert schedule.kernel_count == 1 and schedule.program.arena_bytes == 0
    assert " ? " not in print_kernel(schedule.kernels[0])


@pytest.mark.parametrize(
    "layout, window, steps, padding",
    [
        ((20000,), (5,), (2,), "VALID"),
        ((20001,), (3,), (2,), "SAME"),
        ((2, 8, 55, 55), (1, 1, 3, 3), (1, 1, 2, 2), "SAME"),
        ((2, 55, 55, 32), (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        ((4, 4096), (1, 4), (1, 4), "VALID"),
    ],
)
def test_overlapping_window_gradients_are_one_kernel(layout, window, steps, padding):
    pooled = lambda x: (lax.reduce_window(x, -np.inf, lax.max, window, steps, padding) ** 2).sum()
    schedule = scheduled(weft.grad(pooled), np.zeros(layout, "f4"))
    assert schedule.kernel_count == 1 and schedule.program.arena_bytes == 0


def pairs_turned(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return wnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)


def halves_turned(x, cos, sin):
    a, b = wnp.split(x, 2, -1)
    return wnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


@pytest.mark.parametrize("turned", [pairs_turned, halves_turned])
def test_rotary_embeddings_are_one_kernel_forth_and_back(turned):
    x, angle = np.zeros((4, 64, 8, 256), "f4"), np.zeros((64, 1, 128), "f4")
    for function in (turned, weft.grad(lambda *args: (turned(*args) ** 2).sum())):
        schedule = scheduled(function, x, angle, angle)
        assert schedule.kernel_count == 1 and schedule.program.arena_bytes == 0


def scanned_sum(joined):
    return lambda x: (
        lax.associative_scan(wnp.add, wnp.concatenate([x, 2 * x]) if joined else 2 * x) ** 2
    ).sum()


@pytest.mark.parametrize("joined", [False, True])
def test_scan_gradient_code_grows_with_nesting_depth(joined):
    """Each level reads the one before at two positions: inlined into one kernel, that is 2^levels copies of the code."""

    def lines(n):
        kernels = scheduled(weft.grad(scanned_sum(joined)), np.zeros(n, "f4")).kernels
        return sum(len(print_kernel(kernel).splitlines()) for kernel in kernels)

    assert lines(4096) < 2 * lines(256)  # 12 levels for 8
