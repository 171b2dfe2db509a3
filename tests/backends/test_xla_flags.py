"""XLA flags and options, and platforms that a program requests: errors, warnings, and ignored
values."""

import warnings

import pytest

import weft
import weft.numpy as wnp
from tests.harness.processes import run_python
from weft._engine.backends import base, xla_flags
from weft._engine.util.config import Override
from weft._engine.util.errors import DeviceRuntimeError


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    monkeypatch.setattr(xla_flags, "_warned_flags", set())


def named(call) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught]


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("", []),
        (
            "--xla_force_host_platform_device_count=8 --xla_dump_to=/tmp/x --xla_dump_hlo_as_text",
            [],
        ),
        ("--xla_dump_hlo_as_text=false", []),
        ("--xla_cpu_enable_fast_math=true", ["xla_cpu_enable_fast_math"]),
        (
            "--xla_cpu_enable_fast_mat=true --xla_foo",
            ["xla_cpu_enable_fast_mat (did you mean xla_cpu_enable_fast_math?), xla_foo"],
        ),
        (
            "--xla_force_host_platform_devices_count=8",
            [
                "xla_force_host_platform_devices_count (did you mean xla_force_host_platform_device_count?)"
            ],
        ),
    ],
)
def test_flags_without_effect_are_named_once(monkeypatch, flags, expected):
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert named(xla_flags.check_environment) == [
        f"XLA_FLAGS: weft does not implement {text}, and ignores it." for text in expected
    ]
    assert named(xla_flags.check_environment) == []


@pytest.mark.parametrize(
    "flags, match",
    [
        (
            "--xla_force_host_platform_device_count=many",
            "xla_force_host_platform_device_count has the value 'many'",
        ),
        ("--xla_dump_hlo_as_text=perhaps", "type bool"),
        ("--xla_dump_to", "xla_dump_to has the value 'true'"),
        ("xla_dump_to=/tmp", "two hyphens"),
    ],
)
def test_malformed_flags(monkeypatch, flags, match):
    monkeypatch.setenv("XLA_FLAGS", flags)
    with pytest.raises(ValueError, match=match):
        xla_flags.check_environment()


OPTIONS = [
    ({"xla_foo": 1}, "No such compile option: 'xla_foo'"),
    ({"num_partitions": 1}, "No such compile option"),
    ({"xla_cpu_enable_fast_mat": 1}, "did you mean xla_cpu_enable_fast_math"),
    ({"xla_cpu_enable_fast_math": "zz"}, "'zz' is not a valid bool value"),
    ({"xla_cpu_enable_fast_math": 3}, "not a valid bool"),
    ({"xla_backend_optimization_level": "a"}, "not a valid int32 value"),
    ({"optimization_level": "O1"}, "not a valid int32"),
]


@pytest.mark.parametrize("options, match", OPTIONS)
def test_options_that_the_compiler_of_jax_refuses(options, match):
    with pytest.raises(DeviceRuntimeError, match=match):
        weft.jit(lambda x: x, compiler_options=options)(1.0)
    with pytest.raises(DeviceRuntimeError, match=match):
        weft.jit(lambda x: x).lower(1.0).compile(compiler_options=options)


def test_other_options():
    for wrong in ("abc", {1: 2}):
        with pytest.raises(TypeError, match="compiler_options must be a dict"):
            weft.jit(lambda x: x, compiler_options=wrong)
    options = {
        "xla_cpu_enable_fast_math": True,
        "xla_backend_optimization_level": 2,
        "exec_time_optimization_effort": 0.5,
    }
    (text,) = named(lambda: weft.jit(lambda x: x + 1, compiler_options=options)(wnp.ones(3)))
    assert "xla_cpu_enable_fast_math, xla_backend_optimization_level," in text
    assert named(lambda: weft.jit(lambda x: x + 2, compiler_options=options)(wnp.ones(3))) == []


def test_options_of_a_part_of_a_program():
    part = weft.jit(lambda x: x * 2, compiler_options={"xla_cpu_enable_fast_math": True})
    whole = {
        "jit": weft.jit(lambda x: part(x) + 1),
        "make_jaxpr": weft.make_jaxpr(part),
        "gradient": weft.jit(weft.grad(part)),
        "scan": lambda x: weft.lax.scan(lambda c, _: (part(c), None), x, length=2),
    }
    for name, call in whole.items():
        with pytest.raises(
            ValueError, match="`compiler_options` can only be passed to the outermost jit"
        ) as raised:
            call(1.0)
        assert "xla_cpu_enable_fast_math" in str(raised.value), name
    results = []
    named(lambda: results.append(weft.vmap(part)(wnp.arange(3.0))))  # still a separate program
    named(lambda: results.append(weft.grad(part)(1.0)))
    assert results[0].tolist() == [0.0, 2.0, 4.0] and results[1] == 2


@pytest.mark.parametrize("platforms", [None, "", "cpu", "cuda,cpu", "cpu,cuda", "reference,cpu"])
def test_platforms_that_are_there(platforms):
    with Override(platforms=platforms):
        base.check_platforms()


@pytest.mark.parametrize(
    "platforms, missing",
    [
        ("bogus", "bogus"),
        ("cpu,bogus", "bogus"),
        ("cuda", "cuda"),
        ("tpu,cpu", "tpu"),
        ("CPU", "CPU"),
        ("cpu, cuda", " cuda"),
    ],
)
def test_platforms_that_are_not(platforms, missing):
    with (
        Override(platforms=platforms),
        pytest.raises(RuntimeError, match=f"Unable to initialize backend '{missing}'"),
    ):
        base.check_platforms()


def test_xla_flags_are_checked_at_first_device_use():
    program = "import weft; print(len(weft.devices()))"
    done = run_python(
        "-c",
        program,
        XLA_FLAGS="--xla_foo --xla_force_host_platform_device_count=4",
        WEFT_NUM_DEVICES="",
    )
    assert done.stdout.split() == ["4"] and "weft does not implement xla_foo" in done.stderr
    assert (
        "Unable to initialize backend 'tpu'"
        in run_python("-c", program, JAX_PLATFORMS="tpu").stderr
    )
