"""The check `stages`: the error names the pass or the kernel at fault."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.verification import faults
from tests.verification.programs import PROGRAMS, normal
from weft._engine import pipeline
from weft._engine.partition import partition
from weft._engine.util.config import Override
from weft._engine.util.record import replace
from weft._engine.verification import stages
from weft.errors import VerificationError
from weft.sharding import NamedSharding, PartitionSpec as P


@pytest.fixture(autouse=True)
def checked():
    with Override(check="stages"):
        yield


@pytest.fixture
def compared(monkeypatch):
    """Return the stages that ran, by their titles."""
    types = []
    inner = stages._jaxpr_stages
    monkeypatch.setattr(
        stages,
        "_jaxpr_stages",
        lambda call: (types.append([t for t, *_ in inner(call)]), inner(call))[1],
    )
    return types


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_correct_programs_pass(program, compared):
    program()
    assert compared


def error_of(fun, *args):
    with pytest.raises(VerificationError) as info:
        weft.jit(fun)(*args)
    return info.value


def on_mesh(x, *spec):
    return weft.device_put(x, NamedSharding(weft.make_mesh((8,), ("a",)), P(*spec)))


def test_a_fault_of_the_first_simplification(monkeypatch):
    faults.in_simplify(monkeypatch)
    error = error_of(lambda x: wnp.sin(x) * 2, normal(3, 5))
    assert error.stage.startswith("simplify, equation ") and "test_stages.py" in error.stage
    assert "differs after simplify from the traced program" in str(error) and error.index == (0, 0)
    assert "after simplify  " in str(error) and "before          " in str(error)


def test_a_fault_of_the_partitioner(monkeypatch):
    x = on_mesh(normal(16), "a")
    inner = partition.partition_for

    def wrong(*args):
        stage = inner(*args)
        return replace(stage, jaxpr=faults.swap(stage.jaxpr, "sin", "cos"))

    monkeypatch.setattr(partition, "partition_for", wrong)
    error = error_of(lambda x: wnp.sin(x).sum(), x)
    assert error.stage.startswith("partition")


def test_a_fault_of_the_simplification_after_partitioning(monkeypatch):
    inner, count = pipeline.simplify, []

    def wrong(jaxpr):
        count.append(jaxpr)
        return faults.swap(inner(jaxpr), "sin", "cos") if len(count) == 2 else inner(jaxpr)

    x = on_mesh(normal(16), "a")
    monkeypatch.setattr(pipeline, "simplify", wrong)
    assert error_of(lambda x: wnp.sin(x), x).stage.startswith("simplify local")


def test_a_fault_of_the_simplification_of_the_stacked_program(monkeypatch):
    x = on_mesh(normal(16), "a")
    faults.in_stack(monkeypatch)
    assert error_of(lambda x: wnp.sin(x), x).stage.startswith("stack, equation cos")


def test_a_fault_of_the_lowering_names_the_kernel(monkeypatch):
    faults.in_lowering(monkeypatch)
    error = error_of(lambda x: (wnp.exp(x) + 1.25, wnp.sort(x)), normal(3, 5))
    assert error.stage.startswith("schedule, kernel ") and "sub" in error.stage
    assert "(float32[3, 5]) differs after schedule from the decompose" in str(error)


def test_a_fault_of_the_code_generator_names_the_kernel(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    x = wnp.abs(normal(3, 13)) + 1
    faults.in_codegen(monkeypatch)
    error = error_of(lambda x: wnp.sort(wnp.sqrt(x) + x * 1.625, axis=0), x)
    assert error.stage.startswith("codegen, kernel fused_") and "test_stages.py" in error.stage
    assert "differs after codegen from the schedule" in str(error)


def test_a_kernel_that_leaves_its_buffer_is_named(monkeypatch):
    faults.in_bounds(monkeypatch)
    error = error_of(lambda x: wnp.exp(x) - 3, normal(17))
    assert error.stage.startswith("schedule, kernel ")


def test_only_the_first_call_is_compared(compared):
    x = normal(4)
    compared.clear()
    f = weft.jit(lambda x: x * 13)
    for _ in range(5):
        f(x)
    assert compared == [["simplify"]]
    with Override(check="stages,values:50%"):
        for _ in range(5):
            f(x)
    assert len(compared) == 2


def test_large_kernels_run_as_native_code():
    x = normal(700, 700)
    step = np.asarray(weft.jit(lambda x: wnp.sin(x) @ x)(x))
    assert step.shape == (700, 700)
