"""The reference backend: attributes of its devices, divergent programs, callbacks, and whole
processes on it."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.harness.processes import run_python
from weft import lax
from weft._engine.util.config import Override
from weft.sharding import Mesh, NamedSharding, P

X = np.arange(16, dtype=np.float32)


def mesh(backend=None):
    return Mesh(np.array(weft.devices(backend)).reshape(4, 2), ("x", "y"))


def test_devices_answer_for_their_backend():
    first = weft.devices("reference")[0]
    assert (first.platform, repr(first), str(first)) == (
        "reference",
        "ReferenceDevice(id=0)",
        "reference:0",
    )
    assert first.client.platform == "reference"
    assert (
        first is not weft.devices("cpu")[0]
        and first.client.devices()[0] is first
        and weft.device_count("reference") == 8
    )
    assert weft.default_backend() == "cpu"
    with Override(backend="reference"):
        assert weft.default_backend() == "reference" and weft.devices()[0] is first
        assert wnp.ones(2).device is first
    with (
        Override(backend="abacus"),
        pytest.raises(RuntimeError, match="Platforms present are: cpu, reference"),
    ):
        weft.devices()


def test_programs_follow_committed_arrays():
    x = weft.device_put(X, NamedSharding(mesh("reference"), P("x")))
    y = weft.jit(lambda x: x * 2)(x)
    assert (
        y.sharding.device_set == set(weft.devices("reference"))
        and (y + 1).sharding.device_set == y.sharding.device_set
    )
    np.testing.assert_array_equal(weft.device_put(y, weft.devices("cpu")[1]), X * 2)
    with pytest.raises(ValueError, match="incompatible devices"):
        weft.jit(lambda x, y: x + y)(x, weft.device_put(X, NamedSharding(mesh("cpu"), P("x"))))


def test_a_backend_takes_arguments_of_any():
    on_cpu, there = (
        weft.device_put(X, NamedSharding(mesh(b), P(("x", "y")))) for b in ("cpu", "reference")
    )
    f = weft.jit(lambda a, b: (a * b).sum(), backend="reference")
    assert (
        float(f(on_cpu, there))
        == float((X * X).sum())
        == float(weft.jit(lambda a, b: (a * b).sum(), backend="cpu")(on_cpu, there))
    )


def both(f, *args, **options):
    """Return the results of `f` after checking that they are equal on both backends."""
    first, second = [
        weft.jit(f, backend=backend, **options)(*args) for backend in ("cpu", "reference")
    ]
    np.testing.assert_allclose(first, second, rtol=1e-6)
    return np.asarray(second)


def test_devices_may_diverge_in_branches_and_trip_counts():
    def on_device(x):
        i = lax.axis_index("x")
        halved = lax.cond(i > 1, lambda v: v / 2, lambda v: v + 10, x)
        summed = lax.while_loop(
            lambda c: c[0] < i, lambda c: (c[0] + 1, c[1] + lax.psum(x, "y")), (0, halved)
        )[1]
        return summed

    f = weft.shard_map(on_device, mesh=mesh(), in_specs=P("x"), out_specs=P("x"), check_vma=False)
    got = both(f, X)
    want = np.concatenate(
        [(b + 10 if i < 2 else b / 2) + 2 * i * b for i, b in enumerate(X.reshape(4, 4))]
    )
    np.testing.assert_array_equal(got, want)


def test_a_collective_that_not_all_reach_is_an_error():
    def on_device(x):
        return lax.cond(lax.axis_index("x") > 1, lambda v: lax.psum(v, "x"), lambda v: v, x)

    f = weft.shard_map(on_device, mesh=mesh(), in_specs=P("x"), out_specs=P("x"), check_vma=False)
    with pytest.raises(
        RuntimeError,
        match=r"psum is reached by the devices \[4, 6\] only; \[0, 2\] do not take part",
    ):
        weft.jit(f, backend="reference")(X)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_callbacks_run_once_for_equal_values(backend):
    seen = []

    def on_device(x):
        weft.debug.callback(
            lambda i, v: seen.append((int(i), float(v))), lax.axis_index("x"), x.sum()
        )
        return x

    f = weft.shard_map(on_device, mesh=mesh(), in_specs=P("x"), out_specs=P("x"), check_vma=False)
    weft.jit(f, backend=backend)(X).block_until_ready()
    assert sorted(set(seen)) == [(i, float(b.sum())) for i, b in enumerate(X.reshape(4, 4))]


def test_donated_arguments_are_gone():
    x = weft.device_put(X, weft.devices("reference")[0])
    y = weft.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted() and y.tolist() == (X + 1).tolist()


def test_a_process_may_run_on_it():
    script = (
        "import weft, weft.numpy as wnp\n"
        "x = weft.grad(lambda x: wnp.tanh(x).sum())(wnp.zeros(3))\n"
        "print(weft.default_backend(), x.device, x.tolist(), float(x[0]))\n"
    )
    done = run_python("-c", script, WEFT_BACKEND="reference", JAX_PLATFORMS="")
    assert done.stdout == "reference reference:0 [1.0, 1.0, 1.0] 1.0\n", done.stderr
