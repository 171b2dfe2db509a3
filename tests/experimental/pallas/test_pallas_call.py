"""Kernels against NumPy: blocks and their edges, grids in order and in parallel, scratch memory, transformations, errors."""

import functools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.pallas import loops
from weft.experimental import checkify, pallas as pl
from weft.experimental.pallas import tpu as pltpu
from weft.sharding import PartitionSpec as P

F32 = np.float32


def like(x, shape=None):
    return weft.ShapeDtypeStruct(x.shape if shape is None else shape, x.dtype)


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(F32)


def is_parallel(call) -> bool:
    """Return whether the grid of the only program of a call became independent parts."""
    ((kernel, _),) = call.known.values()
    return loops._independent(kernel) is not None


# ---- blocks


def copied(x, block, grid, shape=None, in_block=None):
    spec = lambda dims: pl.BlockSpec(dims, lambda *ids: ids)
    call = pl.pallas_call(
        lambda x_ref, o_ref: o_ref.set(x_ref[...]),
        like(x, shape),
        grid=grid,
        in_specs=[spec(in_block or block)],
        out_specs=spec(block),
    )
    return np.asarray(call(x)), call


@pytest.mark.parametrize(
    "shape, block",
    [
        ((), ()),
        ((8,), (2,)),
        ((7,), (3,)),
        ((3,), (8,)),
        ((6, 5), (2, 5)),
        ((6, 5), (4, 2)),
        ((4, 6, 3), (2, 3, 3)),
    ],
    ids=str,
)
def test_blocks_cover_an_array_of_any_size(shape, block):
    x = random(*shape)
    grid = tuple(-(-n // b) for n, b in zip(shape, block))
    y, call = copied(x, block, grid)
    np.testing.assert_array_equal(y, x)
    assert is_parallel(call) == (max(grid, default=1) > 1)


@pytest.mark.parametrize(
    "dtype, fill",
    [(F32, np.nan), (np.int32, np.iinfo(np.int32).min), (np.uint8, 0), (np.bool_, False)],
)
def test_what_lies_outside_of_an_array_is_blank(dtype, fill):
    y, _ = copied(np.ones(3, dtype), (6,), (1,), shape=(6,))
    np.testing.assert_array_equal(y, np.array([1, 1, 1, fill, fill, fill]).astype(dtype))


def test_blank_memory_is_zero_where_that_is_asked_for():
    call = pl.pallas_call(
        lambda o_ref: o_ref.at[0].set(1.0),
        weft.ShapeDtypeStruct((2,), F32),
        interpret=pltpu.InterpretParams(uninitialized_memory="zero"),
    )
    assert call().tolist() == [1.0, 0.0]


def test_dims_are_squeezed_and_indexed_by_element():
    x = random(6, 4)
    rows = pl.pallas_call(
        lambda x_ref, o_ref: o_ref.set(x_ref[...] + 1),
        like(x),
        grid=(6,),
        in_specs=[pl.BlockSpec((None, 4), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((pl.Squeezed(), 4), lambda i: (i, 0)),
    )
    np.testing.assert_array_equal(rows(x), x + 1)
    windows = pl.pallas_call(
        lambda x_ref, o_ref: o_ref.set(x_ref[:1] + x_ref[1:]),
        like(x, (5, 4)),
        grid=(5,),
        in_specs=[pl.BlockSpec((pl.Element(2), pl.Element(4)), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((1, 4), lambda i: (i, 0)),
    )
    np.testing.assert_array_equal(windows(x), x[:-1] + x[1:])
    padded = pl.pallas_call(
        lambda x_ref, o_ref: o_ref.set(x_ref[...]),
        like(x, (6,)),
        grid=(1,),
        in_specs=[pl.BlockSpec((pl.Element(6, (1, 2)),), lambda i: 0)],
    )
    np.testing.assert_array_equal(padded(x[:3, 0].copy()), [np.nan, *x[:3, 0], np.nan, np.nan])
    bounded = pl.pallas_call(
        lambda x_ref, o_ref: o_ref.set(x_ref[...]),
        like(x, (3, 4)),
        grid=(1,),
        in_specs=[pl.BlockSpec((pl.BoundedSlice(3), 4), lambda i: (pl.ds(i + 2, 3), 0))],
    )
    np.testing.assert_array_equal(bounded(x), x[2:5])


def test_prefetched_scalars_choose_blocks():
    x, order = random(4, 8), np.array([3, 1, 1, 0], np.int32)
    spec = pltpu.PrefetchScalarGridSpec(
        1,
        (4,),
        [pl.BlockSpec((1, 8), lambda i, order: (order[i], 0))],
        pl.BlockSpec((1, 8), lambda i, _: (i, 0)),
    )
    call = pl.pallas_call(
        lambda order_ref, x_ref, o_ref: o_ref.set(x_ref[...] * order_ref[pl.program_id(0)]),
        like(x),
        grid_spec=spec,
    )
    np.testing.assert_array_equal(call(order, x), x[order] * order[:, None].astype(F32))
    both = weft.vmap(call, (0, None))(np.stack([order, order[::-1]]), x)
    np.testing.assert_array_equal(both, [call(order, x), call(order[::-1].copy(), x)])


# ---- grids


def matmul(m, k, n, bm, bk, bn, dtype=F32, scratch=True, **options):
    def kernel(x_ref, y_ref, o_ref, *acc):
        acc_ref = acc[0] if acc else o_ref

        @pl.when(pl.program_id(2) == 0)
        def _():
            acc_ref[...] = wnp.zeros_like(acc_ref)

        acc_ref[...] += wnp.dot(x_ref[...], y_ref[...], preferred_element_type=F32)
        if acc:

            @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
            def _():
                o_ref[...] = acc_ref[...].astype(o_ref.dtype)

    return pl.pallas_call(
        kernel,
        weft.ShapeDtypeStruct((m, n), dtype),
        grid=(m // bm, n // bn, k // bk),
        in_specs=[
            pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)),
            pl.BlockSpec((bk, bn), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((bm, bn), F32)] if scratch else [],
        **options,
    )


@pytest.mark.parametrize("scratch", [True, False])
def test_a_product_accumulates_over_the_last_axis_of_the_grid(scratch):
    x, y = random(32, 48), random(48, 24, seed=1)
    call = matmul(32, 48, 24, 16, 16, 8, scratch=scratch)
    np.testing.assert_allclose(call(x, y), x @ y, rtol=1e-4, atol=1e-4)
    assert is_parallel(call)


def test_scratch_memory_carries_values_between_grid_steps():
    def kernel(x_ref, o_ref, total):
        @pl.when(pl.program_id(0) == 0)
        def _():
            total[...] = wnp.zeros_like(total)

        total[...] += x_ref[...]
        o_ref[...] = total[...]

    x = random(12)
    spec = pl.BlockSpec((3,), lambda i: i)
    call = pl.pallas_call(
        kernel,
        like(x),
        grid=(4,),
        in_specs=[spec],
        out_specs=spec,
        scratch_shapes=[pltpu.VMEM((3,), F32)],
    )
    np.testing.assert_allclose(call(x), x.reshape(4, 3).cumsum(0).reshape(-1), rtol=1e-5)
    assert not is_parallel(call)


def test_iterations_that_share_a_block_run_in_order():
    def kernel(x_ref, o_ref):
        i = pl.program_id(0)
        o_ref[i] = x_ref[i] + wnp.where(i > 0, o_ref[wnp.maximum(i - 1, 0)], 0.0)

    x = random(6)
    np.testing.assert_allclose(pl.pallas_call(kernel, like(x), grid=6)(x), x.cumsum(), rtol=1e-5)


def test_outputs_may_differ_in_the_axes_that_index_them():
    def kernel(x_ref, rows_ref, sums_ref):
        rows_ref[...] = x_ref[...] * 2
        sums_ref[...] = wnp.where(pl.program_id(1) == 0, 0.0, sums_ref[...]) + x_ref[...].sum(
            1, keepdims=True
        )

    x = random(4, 6)
    call = pl.pallas_call(
        kernel,
        (like(x), like(x, (4, 1))),
        grid=(2, 3),
        in_specs=[pl.BlockSpec((2, 2), lambda i, j: (i, j))],
        out_specs=(
            pl.BlockSpec((2, 2), lambda i, j: (i, j)),
            pl.BlockSpec((2, 1), lambda i, j: (i, 0)),
        ),
    )
    rows, sums = call(x)
    np.testing.assert_array_equal(rows, x * 2)
    np.testing.assert_allclose(sums, x.sum(1, keepdims=True), rtol=1e-5)
    assert is_parallel(call)


def test_sizes_of_a_grid_may_be_traced():
    def kernel(x_ref, o_ref):
        o_ref[pl.program_id(0)] = x_ref[pl.program_id(0)] * pl.num_programs(0)

    run = weft.jit(
        lambda n, x: pl.pallas_call(kernel, like(x), grid=(n,), input_output_aliases={0: 0})(x)
    )
    x = random(5)
    np.testing.assert_array_equal(run(3, x), [*(x[:3] * 3), *x[3:]])


def test_axes_of_a_grid_have_names():
    def kernel(o_ref):
        assert lax.axis_size("rows") == 3
        o_ref[...] = wnp.full(o_ref.shape, pl.program_id(0))

    call = pl.pallas_call(
        kernel,
        weft.ShapeDtypeStruct((3,), np.int32),
        grid=(("rows", 3),),
        out_specs=pl.BlockSpec((1,), lambda i: i),
    )
    assert call().tolist() == [0, 1, 2]


def test_aliased_outputs_begin_as_their_inputs():
    x, y = random(6), random(6, seed=1)
    spec = pl.BlockSpec((2,), lambda i: i)

    def add(x_ref, _, o_ref):
        o_ref[...] += x_ref[...]

    call = pl.pallas_call(
        add, like(x), grid=3, in_specs=[spec, spec], out_specs=spec, input_output_aliases={1: 0}
    )
    np.testing.assert_array_equal(call(x, y), x + y)
    np.testing.assert_array_equal(weft.vmap(call, (0, None))(np.stack([x, y]), y), [x + y, y + y])


# ---- transformations


def test_vmap_adds_an_axis_to_the_grid():
    x, y = random(3, 32, 16), random(16, 24, seed=1)
    call = matmul(32, 16, 24, 16, 8, 8)
    np.testing.assert_allclose(weft.vmap(call, (0, None))(x, y), x @ y, rtol=1e-4, atol=1e-4)
    (eqn,) = weft.make_jaxpr(weft.vmap(call, (0, None)))(x, y).eqns
    assert eqn.params["kernel"].grid == (3, 2, 3, 2)
    twice = weft.vmap(weft.vmap(call, (None, 1), 1), (0, None))(x, np.stack([y, 2 * y], 1))
    np.testing.assert_allclose(twice, np.stack([x @ y, 2 * (x @ y)], 2), rtol=1e-4, atol=1e-4)


def test_forward_derivatives_are_those_of_the_kernel():
    x = random(6)
    spec = pl.BlockSpec((2,), lambda i: i)
    call = pl.pallas_call(
        lambda x_ref, o_ref: o_ref.set(wnp.sin(x_ref[...]) * x_ref[...]),
        like(x),
        grid=3,
        in_specs=[spec],
        out_specs=spec,
    )
    _, slope = weft.jvp(call, (x,), (np.ones_like(x),))
    np.testing.assert_allclose(slope, np.cos(x) * x + np.sin(x), rtol=1e-5)
    with pytest.raises(ValueError, match="no reverse-mode derivative"):
        weft.grad(lambda x: call(x).sum())(x)


def test_a_custom_rule_gives_reverse_mode():
    square = lambda x: pl.pallas_call(lambda x_ref, o_ref: o_ref.set(x_ref[...] ** 2), like(x))(x)
    f = weft.custom_vjp(square)
    f.defvjp(
        lambda x: (square(x), x),
        lambda x, ct: (
            pl.pallas_call(
                lambda x_ref, c_ref, o_ref: o_ref.set(2 * x_ref[...] * c_ref[...]), like(x)
            )(x, ct),
        ),
    )
    x = random(4)
    np.testing.assert_allclose(weft.grad(lambda x: f(x).sum())(x), 2 * x, rtol=1e-6)


def test_each_device_runs_a_kernel_on_its_block():
    mesh = weft.make_mesh((4,), ("d",))
    call = lambda x: pl.pallas_call(
        lambda x_ref, o_ref: o_ref.set(x_ref[...] * 2 + 1),
        like(x),
        grid=2,
        in_specs=[pl.BlockSpec((1, 3), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((1, 3), lambda i: (i, 0)),
    )(x)
    x = random(8, 3)
    whole = weft.jit(weft.shard_map(call, mesh=mesh, in_specs=P("d"), out_specs=P("d")))(x)
    np.testing.assert_array_equal(whole, x * 2 + 1)
    sharded = weft.device_put(x, weft.NamedSharding(mesh, P("d")))
    grid = weft.jit(
        pl.pallas_call(
            lambda x_ref, o_ref: o_ref.set(x_ref[...] * 2 + 1),
            like(x),
            grid=4,
            in_specs=[pl.BlockSpec((2, 3), lambda i: (i, 0))],
            out_specs=pl.BlockSpec((2, 3), lambda i: (i, 0)),
        )
    )
    np.testing.assert_array_equal(grid(sharded), x * 2 + 1)


def test_a_kernel_is_traced_once_per_type():
    traced = []

    def kernel(x_ref, o_ref):
        traced.append(x_ref.shape)
        o_ref[...] = x_ref[...] + 1

    call = pl.pallas_call(kernel, weft.ShapeDtypeStruct((), F32))
    assert weft.jit(lambda x: call(call(x)))(F32(1)) == 3 and call(F32(1)) == 2
    assert len(traced) == 1


# ---- errors

X = np.arange(4, dtype=np.int32)
NOTHING = lambda *refs: None


def my_map(i):
    return i, 0


@pytest.mark.parametrize(
    "error, message, call",
    [
        (
            ValueError,
            "`in_specs` must be a tuple or a list",
            lambda: pl.pallas_call(NOTHING, X, in_specs=pl.BlockSpec()),
        ),
        (
            ValueError,
            "Pytree for `in_specs` and `inputs` do not match",
            lambda: pl.pallas_call(NOTHING, X, in_specs=[pl.BlockSpec()])(X, X),
        ),
        (
            ValueError,
            "`out_specs` is a tuple of length 1 but `out_shape` is a tuple of length 2",
            lambda: pl.pallas_call(NOTHING, [X, X], out_specs=[pl.BlockSpec()])(X),
        ),
        (
            ValueError,
            r"Block shape for args\[0\] .*same number of dimensions",
            lambda: pl.pallas_call(NOTHING, X, in_specs=[pl.BlockSpec((1, 1))])(X),
        ),
        (
            ValueError,
            r"my_map at .*test_pallas_call.py:\d+ for args\[0\] must return 1 value",
            lambda: pl.pallas_call(NOTHING, X, grid=2, in_specs=[pl.BlockSpec((2,), my_map)])(X),
        ),
        (
            ValueError,
            r"for args\[0\]\['a'\] must return integer scalars. Output\[0\] has type .*float",
            lambda: pl.pallas_call(
                NOTHING, X, grid=2, in_specs=[{"a": pl.BlockSpec((2,), lambda i: 5.0)}]
            )({"a": X}),
        ),
        (
            ValueError,
            "must not capture constants",
            lambda: pl.pallas_call(
                NOTHING, X, grid=2, in_specs=[pl.BlockSpec((2,), lambda i: wnp.asarray(X)[i])]
            )(X),
        ),
        (
            ValueError,
            "captures constants of type int32.4.",
            lambda: pl.pallas_call(lambda o_ref: o_ref.set(X), X)(),
        ),
        (
            ValueError,
            "should return None, it returned 0",
            lambda: pl.pallas_call(lambda *refs: 0, X)(X),
        ),
        (
            ValueError,
            "mapping '2:0' with input index 2 outside the range",
            lambda: pl.pallas_call(NOTHING, X, input_output_aliases={2: 0})(X),
        ),
        (
            ValueError,
            "mapping '0:0' referring to",
            lambda: pl.pallas_call(NOTHING, X[:2], input_output_aliases={0: 0})(X),
        ),
        (
            ValueError,
            "Out of bound slice",
            lambda: pl.pallas_call(lambda x_ref, o_ref: x_ref[pl.ds(3, 2)], X)(X),
        ),
        (ValueError, "program_id: there is no grid here", lambda: pl.program_id(0)),
        (
            ValueError,
            "axis 1 is not an axis of the grid",
            lambda: pl.pallas_call(lambda o_ref: o_ref.set(pl.program_id(1)), X, grid=2)(),
        ),
        (
            TypeError,
            "takes 1 positional argument but 2 were given",
            lambda: pl.pallas_call(lambda x_ref: None, X)(X),
        ),
        (
            TypeError,
            "size of the grid must be an integer",
            lambda: pl.pallas_call(NOTHING, X, grid=(2.5,))(X),
        ),
        (
            ValueError,
            "either a grid_spec, or",
            lambda: pl.pallas_call(NOTHING, X, grid=2, grid_spec=pl.GridSpec()),
        ),
        (
            NotImplementedError,
            "has input_output_aliases",
            lambda: weft.jvp(
                pl.pallas_call(NOTHING, np.ones(2, F32), input_output_aliases={0: 0}),
                (np.ones(2, F32),),
                (np.ones(2, F32),),
            ),
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_errors_say_what_does_not_fit(error, message, call):
    with pytest.raises(error, match=message):
        call()


# ---- references


def test_slices_that_begin_at_traced_places():
    x = random(4, 6, 5)

    @weft.jit
    def f(x, i):
        ref = weft.new_ref(x)
        got = ref[i, pl.ds(i + 1, 3), pl.ds(0, 2, 2)]
        ref[pl.ds(i, 2), 0] = 1.0
        ref.at[1].at[pl.ds(i, 3), 1:3][0] += 5.0
        ref.at[pl.ds(i, 2, 2), :, 4][...] = 2.0
        return got, ref[...]

    got, after = f(x, 1)
    want = x.copy()
    want[1:3, 0] = 1
    want[1, 1, 1:3] += 5
    want[1:4:2, :, 4] = 2
    np.testing.assert_array_equal(got, x[1, 2:5, 0:3:2])
    np.testing.assert_allclose(after, want, rtol=1e-6)


@pytest.mark.parametrize(
    "index, shape",
    [
        ((pl.ds(3, 4),), (4, 5)),
        ((slice(None), pl.ds(-2, 4)), (6, 4)),
        ((2, slice(1, 4)), (3,)),
        ((..., pl.ds(4, 3)), (6, 3)),
        ((np.array([[0], [7]]), np.array([1, 2])), (2, 2)),
        ((np.array([5, 9]), slice(0, 2)), (2, 2)),
    ],
    ids=str,
)
def test_masked_elements_may_lie_outside(index, shape):
    x, value = random(6, 5), random(*shape, seed=1)
    mask = np.random.default_rng(2).random(shape) < 0.7
    loaded = pl.load(weft.new_ref(x), index, mask=mask, other=-1.0)
    ref = weft.new_ref(x)
    pl.store(ref, index, value, mask=mask)
    want_loaded, want = np.full(shape, -1, F32), x.copy()
    starts = [
        np.arange(i.start, i.start + i.size)
        if isinstance(i, pl.Slice)
        else np.arange(n)[i]
        if isinstance(i, slice)
        else i
        for i, n in zip(index if index[0] is not ... else (slice(None), index[1]), x.shape)
    ]
    starts += [np.arange(n) for n in x.shape[len(starts) :]]
    if not any(isinstance(i, np.ndarray) for i in index):
        rows, cols = np.ix_(*map(np.atleast_1d, starts))
    else:
        rows, cols = starts if starts[0].ndim == 2 else (starts[0][:, None], starts[1][None])
    rows, cols = (a.reshape(shape) for a in np.broadcast_arrays(rows, cols))
    for at in np.ndindex(shape):
        r, c = rows[at], cols[at]
        if mask[at] and 0 <= r < 6 and 0 <= c < 5:
            want_loaded[at], want[r, c] = x[r, c], value[at]
    np.testing.assert_array_equal(loaded, want_loaded)
    np.testing.assert_array_equal(ref[...], want)


@pytest.mark.parametrize(
    "name, want",
    [("add", 11), ("max", 6), ("min", 5), ("and", 4), ("or", 7), ("xor", 3), ("xchg", 5)],
)
def test_atomic_updates_give_what_was_there(name, want):
    ref = weft.new_ref(wnp.array([6, 1]))
    old = getattr(pl.triton, f"atomic_{name}")(ref, (pl.ds(0, 1),), 5, mask=np.array([True]))
    assert old.tolist() == [6] and ref[...].tolist() == [want, 1]


def test_copies_and_semaphores():
    def kernel(x_ref, o_ref, buffer, sem):
        copy = pltpu.make_async_copy(x_ref.at[pl.ds(2, 2)], buffer, sem)
        copy.start()
        copy.wait()
        pl.semaphore_signal(sem, 3)
        pl.semaphore_wait(sem, 1)
        o_ref[...] = buffer[...] + pl.semaphore_read(sem)

    x = random(6)
    call = pl.pallas_call(
        kernel,
        like(x, (2,)),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((2,), F32), pltpu.SemaphoreType.DMA],
    )
    np.testing.assert_allclose(call(x), x[2:4] + 2)


def test_loops_and_memory_inside():
    def kernel(x_ref, o_ref):
        @functools.partial(pl.run_scoped, total=pltpu.SMEM((), F32))
        def _(total):
            total[...] = 0.0

            @pl.loop(0, x_ref.shape[0], step=2)
            def _(i):
                total[...] += x_ref[i]

            o_ref[...] = total[...]

    x = random(7)
    np.testing.assert_allclose(pl.pallas_call(kernel, like(x, ()))(x), x[::2].sum(), rtol=1e-5)


def test_a_kernel_prints(capsys):
    pl.pallas_call(
        lambda x_ref, o_ref: pl.debug_print("at {} x = {}", pl.program_id(0), x_ref),
        like(X),
        grid=2,
        in_specs=[pl.BlockSpec((2,), lambda i: i)],
    )(X)
    weft.effects_barrier()
    assert capsys.readouterr().out == "at 0 x = [0 1]\nat 1 x = [2 3]\n"


def test_debug_checks_follow_their_setting():
    def kernel(x_ref, o_ref):
        pl.debug_check(x_ref[0] > 0, "x must be positive")
        o_ref[...] = x_ref[...]

    x = -np.ones(2, np.float32)
    run = checkify.checkify(pl.pallas_call(kernel, x))
    assert run(x)[0].get() is None and not pl.enable_debug_checks.value
    with pl.enable_debug_checks(True):
        assert pl.enable_debug_checks.value and weft.config.pallas_enable_debug_checks
        assert "x must be positive" in run(x)[0].get()
    assert run(x)[0].get() is None
    with pl.enable_poison_buffers(True):
        assert pl.enable_poison_buffers.value and run(x)[0].get() is None
