"""The check `values`: correct programs pass, wrong ones are found."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.verification import faults
from tests.verification.programs import PROGRAMS, normal
from weft._engine import pipeline, programs
from weft._engine.backends.cpu.loaded_program import CpuProgram
from weft._engine.ir.registry import registry
from weft._engine.util import cache, lapack
from weft._engine.util.config import Override
from weft._engine.verification import values
from weft._engine.verification.evaluation import one_library_thread
from weft.errors import VerificationError
from weft.experimental import io_callback


@pytest.fixture(autouse=True)
def checked():
    with Override(check="values"):
        yield


@pytest.fixture
def compared(monkeypatch):
    """Return the calls that were compared."""
    calls = []
    inner = values.compare
    monkeypatch.setattr(values, "compare", lambda call: (calls.append(call), inner(call))[1])
    return calls


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_correct_programs_pass(program, compared):
    got = program()
    assert compared
    with Override(check=""):
        for x, y in zip(weft.tree.leaves(got), weft.tree.leaves(program())):
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-2)


# ---- wrong programs

FAULTS = [
    (faults.in_simplify, lambda x: wnp.sin(x) * 2), (faults.in_lowering, lambda x: wnp.exp(x) + 1.25),
    (faults.in_codegen, lambda x: wnp.sqrt(x) + x * 1.75),
]  # fmt: skip


@pytest.mark.parametrize("plant, fun", FAULTS, ids=["pass", "lowering", "codegen"])
def test_a_fault_of_the_compiler_is_found(plant, fun, monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    plant(monkeypatch)
    with pytest.raises(
        VerificationError,
        match=r"^jit\(wrong\): result 0 \(float32\[3, 11\]\) differs from op-by-op execution",
    ) as info:
        weft.jit(named(fun, "wrong"))(wnp.abs(normal(3, 11)) + 1)
    text, error = str(info.value), info.value
    assert "first at     [0, 0]" in text and "33 of 33 elements" in text and "compiled     " in text
    assert "test_values.py" in text and "this is a fault of weft" in text
    assert (error.result, error.index) == (0, (0, 0)) and error.arguments[0].shape == (3, 11)
    assert error.program.eqns[0].primitive.name in ("sin", "exp", "sqrt")


def named(fun, name):
    fun = lambda *args, inner=fun: inner(*args)
    fun.__name__ = name
    return fun


def test_the_error_names_the_element_and_the_line(monkeypatch):
    inner = pipeline.simplify

    def add_at_one_place(jaxpr):
        return inner(
            weft.make_jaxpr(lambda x: (x * 3).at[1, 2].add(0.5))(*jaxpr.in_avals)
            if jaxpr.name == "right"
            else jaxpr
        )

    def right(x):
        return x * 3

    monkeypatch.setattr(pipeline, "simplify", add_at_one_place)
    with pytest.raises(VerificationError) as info:
        weft.jit(right)(wnp.ones((4, 5)))
    assert info.value.index == (1, 2) and "wrong        1 of 20 elements" in str(info.value)
    assert "compiled     3.5\n" in str(info.value) and "op by op     3.0\n" in str(info.value)
    assert "computed by  mul at test_values.py" in str(info.value) and "in right" in str(info.value)


def test_a_fault_in_a_gradient_and_in_a_scan_is_found(monkeypatch):
    faults.in_lowering(monkeypatch, "cos", "sin")
    with pytest.raises(VerificationError):
        weft.jit(weft.grad(lambda x: wnp.sin(x).sum()))(normal(5))
    with pytest.raises(VerificationError):
        weft.jit(lambda x: wnp.cos(x))(normal(5))


def test_a_fault_on_a_mesh_is_found(monkeypatch):
    faults.in_stack(monkeypatch)
    mesh = weft.make_mesh((8,), ("a",))
    x = weft.device_put(
        normal(16), weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("a"))
    )
    with pytest.raises(VerificationError):
        weft.jit(wnp.sin)(x)


def test_integer_results_are_exact(monkeypatch):
    faults.in_simplify(monkeypatch, "mul", "add")
    with pytest.raises(VerificationError, match=r"tolerance +exact"):
        weft.jit(lambda x: x * 3)(wnp.arange(5))


def test_an_overwritten_argument_is_found(monkeypatch):
    f = weft.jit(lambda x: x + 1)
    x = normal(8)
    f(x)
    inner = CpuProgram.run

    def run(self, buffers):
        outs = inner(self, buffers)
        buffers[0].view(np.float32, (8,))[3] = 7
        return outs

    monkeypatch.setattr(CpuProgram, "run", run)
    with pytest.raises(VerificationError, match="wrote to its argument x, which is not donated"):
        f(x)


def test_a_wrong_operand_of_a_callback_is_found(monkeypatch):
    faults.in_simplify(monkeypatch)
    seen = []
    with pytest.raises(VerificationError, match="an operand of a callback"):
        weft.jit(lambda x: weft.debug.callback(seen.append, wnp.sin(x)))(1.0)
    assert len(seen) == 1


# ---- how calls run


def test_callbacks_and_prints_run_once(capfd, compared):
    called = []

    def on_host(x):
        called.append(float(x.sum()))
        return np.float32(x) * 2

    @weft.jit
    def f(x):
        y = weft.pure_callback(on_host, weft.ShapeDtypeStruct(x.shape, x.dtype), x)
        z = io_callback(on_host, weft.ShapeDtypeStruct(x.shape, x.dtype), y, ordered=True)
        weft.debug.print("sum {}", z.sum())
        return wnp.sin(z)

    got = f(wnp.ones(3))
    weft.effects_barrier()
    np.testing.assert_allclose(got, np.sin(np.full(3, 4.0)), rtol=1e-6)
    assert (
        called == [3.0, 6.0] and capfd.readouterr().out.count("sum 12") == 1 and len(compared) >= 1
    )


def test_callbacks_in_loops_are_replayed(compared):
    numbers = iter(range(100))

    def body(c, x):
        n = io_callback(
            lambda: np.float32(next(numbers)), weft.ShapeDtypeStruct((), np.float32), ordered=True
        )
        return c + n * x, n

    total, drawn = weft.jit(lambda x: weft.lax.scan(body, 0.0, x))(wnp.ones(6))
    assert (
        float(total) == 15
        and drawn.tolist() == [0, 1, 2, 3, 4, 5]
        and next(numbers) == 6
        and compared
    )


def test_programs_that_a_callback_calls_are_checked_too(compared):
    inner = weft.jit(wnp.cos)
    f = weft.jit(
        lambda x: (
            weft.pure_callback(
                lambda x: np.asarray(inner(x)), weft.ShapeDtypeStruct((3,), np.float32), x
            )
            + 1
        )
    )
    assert float(f(wnp.zeros(3))[0]) == 2 and len(compared) >= 2


def test_donated_arguments_are_consumed_and_compared(compared):
    x = normal(300, 300) + 0
    f = weft.jit(lambda x: x * 2 + 1, donate_argnums=0)
    want = np.asarray(x) * 2 + 1
    compared.clear()
    got = f(x)
    assert x.is_deleted() and len(compared) == 1
    np.testing.assert_allclose(got, want, rtol=1e-6)
    (executable, _, _) = next(iter(f._cache.calls.values()))
    assert executable.aliases == {0: 0}


def test_a_fault_in_the_use_of_donated_memory_is_found(monkeypatch):
    inner = CpuProgram.run

    def run(self, buffers):
        if self.aliases:
            buffers[0].view(np.float32, (300, 300))[5, 6] += 1
        return inner(self, buffers)

    monkeypatch.setattr(CpuProgram, "run", run)
    with pytest.raises(VerificationError) as info:
        weft.jit(lambda x: x * 2 + 1, donate_argnums=0)(normal(300, 300) + 0)
    assert info.value.index == (5, 6)


SHARES = [
    ("values", 20),
    ("values:50%", 10),
    ("values:10%", 2),
    ("values:1%", 1),
    ("values:100%", 20),
    ("types", 0),
]


@pytest.mark.parametrize("check, count", SHARES)
def test_a_share_of_calls_is_compared(check, count, compared):
    x = wnp.ones(3)
    with Override(check=check):
        f = weft.jit(lambda x: x + len(check))
        for _ in range(20):
            f(x)
    assert len(compared) == count


def test_every_call_is_seen_and_no_program_is_read_from_disk(monkeypatch, tmp_path, compared):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    x = wnp.ones(3)
    compared.clear()
    f = weft.jit(lambda x: x * 5 + 2)
    for _ in range(50):
        f(x)
    assert len(compared) == 50
    cache.flush()
    monkeypatch.setattr(programs, "_load", lambda *_: pytest.fail("read from disk"))
    weft.jit(lambda x: x * 5 + 2)(x)


def test_the_setting_takes_effect_at_once(compared):
    x = wnp.ones(3)
    f = weft.jit(lambda x: x * 7)
    with Override(check=""):
        for _ in range(5):
            f(x)
    assert not compared
    f(x)
    assert len(compared) == 1
    with Override(check=""):
        f(x)
    assert len(compared) == 1


def test_compiled_and_lowered_functions_are_checked(compared):
    x = normal(4)
    compared.clear()
    weft.jit(lambda x: x * 11).lower(x).compile()(x)
    assert len(compared) == 1


def test_rounding_is_no_fault():
    x = normal(2000, dtype=np.float32) * 1e3
    weft.jit(
        lambda x: (
            wnp.sum(x),
            wnp.var(x),
            wnp.cumsum(x),
            x - x.mean(),
            wnp.argsort(wnp.round(wnp.sin(x), 2)),
        )
    )(x)
    weft.jit(lambda x: wnp.exp(x) / (1 + wnp.exp(x)))(x.astype(wnp.float16))


def test_an_unchecked_process_imports_nothing_of_it():
    code = (
        "import sys, weft, weft.numpy as wnp\nf = weft.jit(lambda x: x + 1)\nf(wnp.ones(3)), f(wnp.ones(3))\n"
        "print([m for m in sys.modules if m.startswith('weft._engine.verification')])"
    )
    env = {k: v for k, v in os.environ.items() if k not in ("WEFT_CHECK", "WEFT_VERIFY")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout == "[]\n"


def test_terms_of_sums_are_compared_by_their_sums(compared, monkeypatch):
    mesh = weft.make_mesh((4,), ("a",), axis_types=(weft.sharding.AxisType.Explicit,))
    P, layout = (
        weft.sharding.PartitionSpec,
        lambda *spec: weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec(*spec)),
    )
    x, w = (
        weft.device_put(normal(6, 8), layout(None, "a")),
        weft.device_put(normal(8, 5, seed=1), layout("a", None)),
    )
    product = lambda x, w: wnp.einsum("ij,jk->ik", x * 2, w, out_sharding=P(unreduced={"a"}))
    with weft.set_mesh(mesh):
        weft.jit(product)(x, w)
        assert any(call.executable.out_specs[0].has_terms for call in compared)
        faults.in_stack(monkeypatch, "mul", "add")
        with pytest.raises(VerificationError):
            weft.jit(lambda x, w: product(x, w))(x, w)


def test_programs_that_numpy_cannot_run_are_listed(monkeypatch):
    def refuse(*_, **__):
        raise ValueError("not on NumPy")

    monkeypatch.setattr(registry["sin"], "reference", refuse)
    monkeypatch.setattr(values, "calls_unverified", {})

    def unseen(x):
        return wnp.sin(x) * 17

    assert float(weft.jit(unseen)(0.0)) == 0
    assert values.calls_unverified == {
        "jit(unseen)": "an operation has no reference: ValueError: not on NumPy"
    }


def test_the_library_keeps_its_threads():
    control = lapack.thread_control()
    if control is None:
        pytest.skip("NumPy's linear algebra has no threads here")
    threads = ctypes.CFUNCTYPE(ctypes.c_int)(control[0])
    before = threads()
    with one_library_thread():
        assert threads() == 1
    weft.jit(lambda x: x @ x)(normal(40, 40))
    assert threads() == before


def test_scatters_into_a_scalar_are_compared(compared):
    f = weft.jit(lambda x: (x.at[()].add(2.0), x.at[()].set(5.0)))
    assert (
        [float(y) for y in f(wnp.float32(1.0))] == [3, 5]
        and compared
        and not values.calls_unverified.get("jit(<lambda>)")
    )
