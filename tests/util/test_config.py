"""Settings: names, types, environment, overrides per thread, trace keys, number of devices."""

import enum
import os
import subprocess
import sys
import threading

import pytest

from weft._engine.util import config as C
from weft._engine.util.config import config, setting


@pytest.fixture(autouse=True)
def restore():
    before = {name: getattr(C.Config, name) for name in setting.declared}
    yield
    for name, value in before.items():
        setattr(C.Config, name, value)
    C.Config._version += 1
    assert vars(config).keys() <= {"_key"}, "an override outlived its block"


def in_thread(function):
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


@pytest.mark.parametrize("name", ["log_compiles", "jax_log_compiles", "weft_log_compiles"])
def test_three_spellings_of_a_name(name):
    config.update(name, True)
    assert config.log_compiles is config.jax_log_compiles is config.weft_log_compiles is True
    assert config.read(name) is True
    setattr(config, name, False)
    assert config.log_compiles is False


def test_defaults():
    expected = {
        "enable_x64": False, "threefry_partitionable": True, "default_prng_impl": "threefry2x32", "array": True,
        "numpy_rank_promotion": "allow", "numpy_dtype_promotion": "standard", "default_matmul_precision": None,
        "default_device": None, "jax_api": None, "num_cpu_devices": -1, "disable_jit": False,
        "persistent_cache_min_compile_time_secs": 1.0, "traceback_filtering": "auto",
    }  # fmt: skip
    code = f"from weft._engine.util.config import config; print({{n: config.read(n) for n in {list(expected)}}})"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "JAX_"))}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert eval(run.stdout) == expected


def test_old_programs_set_what_no_longer_matters():
    config.update("jax_array", True)
    config.update("jax_threefry_partitionable", False)
    assert config.threefry_partitionable is False
    config.parse_flags_with_absl()


def _with_arguments(code, *arguments):
    pytest.importorskip("absl")
    code = f"from weft._engine.util.config import config\n{code}"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ([], (False, None, 0)),
        (
            [
                "--jax_enable_x64",
                "--other=1",
                "--jax_default_matmul_precision=float32",
                "--jax_debug_nans=false",
            ],
            (True, "float32", 0),
        ),
        (
            [
                "--jax_enable_x64=true",
                "--nojax_enable_x64",
                "--",
                "--jax_default_matmul_precision=float32",
            ],
            (False, None, 0),
        ),
    ],
)
def test_settings_from_the_command_line(arguments, settings):
    run = _with_arguments(
        "config.parse_flags_with_absl(); from absl import flags; flags.FLAGS.jax_enable_x64\n"
        "print((config.enable_x64, config.default_matmul_precision, int(config.debug_nans)))",
        *arguments,
    )
    assert run.returncode == 0 and eval(run.stdout) == settings, run.stderr


def test_settings_of_a_program_that_absl_runs():
    run = _with_arguments(
        "from absl import app; config.config_with_absl(); app.run(lambda argv: print(config.enable_x64, argv[1:]))",
        "--jax_enable_x64=1",
        "file",
    )
    assert run.stdout.strip() == "True ['file']", run.stderr


def test_settings_that_the_command_line_misspells():
    run = _with_arguments("config.parse_flags_with_absl()", "--jax_enable_x64=perhaps")
    assert run.returncode and "jax_enable_x64" in run.stderr and "perhaps" in run.stderr


def test_unknown_flags():
    for call in (
        lambda: config.update("jax_log_compile", True),
        lambda: setattr(config, "log_compile", True),
        lambda: config.read("weft_log_compile"),
        lambda: C.Override(log_compile=True),
    ):
        with pytest.raises(
            AttributeError, match=r"has no setting .*log_compile.*Did you mean log_compiles"
        ):
            call()
    with pytest.raises(AttributeError, match="log_compile"):
        _ = config.jax_log_compile


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("enable_x64", "perhaps", ValueError),
        ("enable_x64", 3, ValueError),
        ("numpy_rank_promotion", "forbid", ValueError),
        ("numpy_dtype_promotion", None, ValueError),
        ("default_matmul_precision", "sloppy", ValueError),
        ("num_cpu_devices", "many", TypeError),
        ("num_cpu_devices", True, TypeError),
        ("compilation_cache_dir", 3, TypeError),
        ("transfer_guard", "never", ValueError),
    ],
)
def test_values_are_checked(name, value, error):
    before = config.read(name)
    with pytest.raises(error, match=name):
        config.update(name, value)
    assert config.read(name) == before


def test_values_take_their_proper_type():
    config.update("enable_x64", 1)
    assert config.enable_x64 is True
    assert config.x64_enabled is True
    config.update("enable_x64", "off")
    assert config.enable_x64 is False
    config.update("persistent_cache_min_compile_time_secs", 2)
    assert isinstance(config.persistent_cache_min_compile_time_secs, float)


def test_members_of_enumerations_go_by_name():
    Precision = enum.Enum("Precision", "DEFAULT HIGH HIGHEST")
    with C.default_matmul_precision(Precision.HIGHEST):
        assert config.default_matmul_precision == "highest"


# ---- environment

ENVIRONMENT = [
    ({"WEFT_ENABLE_X64": "1"}, "enable_x64", True),
    ({"JAX_ENABLE_X64": "true"}, "enable_x64", True),
    ({"WEFT_ENABLE_X64": "0", "JAX_ENABLE_X64": "1"}, "enable_x64", False),
    ({"JAX_NUMPY_RANK_PROMOTION": "raise"}, "numpy_rank_promotion", "raise"),
    ({"JAX_LOG_COMPILES": "on"}, "log_compiles", True),
    ({"WEFT_COMPILATION_CACHE_DIR": "/tmp/x"}, "compilation_cache_dir", "/tmp/x"),
    ({"WEFT_NUM_CPU_DEVICES": "4"}, "num_cpu_devices", 4),
    (
        {"WEFT_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5"},
        "persistent_cache_min_compile_time_secs",
        0.5,
    ),
    ({"WEFT_DEFAULT_MATMUL_PRECISION": "none"}, "default_matmul_precision", None),
    ({"WEFT_JAX_API": "0.10"}, "jax_api", "0.10"),
    ({"WEFT_TRACEBACK": "full"}, "traceback", "full"),
]


@pytest.mark.parametrize("variables, name, expected", ENVIRONMENT)
def test_environment(monkeypatch, variables, name, expected):
    for variable in (f"WEFT_{name.upper()}", f"JAX_{name.upper()}"):
        monkeypatch.delenv(variable, raising=False)
    for variable, text in variables.items():
        monkeypatch.setenv(variable, text)
    assert setting.value_from_environment(setting.declared[name]) == expected


@pytest.mark.parametrize(
    "variable, text",
    [("WEFT_ENABLE_X64", "perhaps"), ("JAX_NUM_CPU_DEVICES", "x"), ("WEFT_TRACEBACK", "no")],
)
def test_environment_errors_name_the_variable(monkeypatch, variable, text):
    monkeypatch.setenv(variable, text)
    name = variable.split("_", 1)[1].lower()
    with pytest.raises(ValueError, match=f"environment variable {variable}: config.{name}"):
        setting.value_from_environment(setting.declared[name])


# ---- the setting `check`

CHECK_TEXTS = [
    ("", "", {}),
    (None, "", {}),
    ("types", "types", {"types": True}),
    (" Maps,memory ", "maps,memory", {"maps": True, "memory": True}),
    ("values,stages", "stages,values", {"stages": True, "values": 1.0}),
    ("values:100%", "values", {"values": 1.0}),
    ("values:12.5%,types", "types,values:12.5%", {"types": True, "values": 0.125}),
]


@pytest.mark.parametrize("value, text, fields", CHECK_TEXTS)
def test_check_parses_a_list_of_names(value, text, fields):
    config.update("check", value)
    assert config.check == config.jax_check == text
    assert config.checks == C.Checks(**fields) and config.checks is config.checks


@pytest.mark.parametrize(
    "bad",
    ["type", "values:0%", "values:101%", "values:10", "values:x%", "maps:3%", "all", 3, ["types"]],
)
def test_check_refuses_other_values(bad):
    with pytest.raises(
        ValueError,
        match=r"config.check is .*\n  It is a list, .*types, maps, memory, stages, values and values:N%",
    ):
        config.update("check", bad)


def test_verify_is_the_check_of_types():
    config.update("check", "values")
    config.update("verify", True)
    assert (
        config.verify is True and config.check == "types,values" and config.values["verify"] is True
    )
    with C.Override(verify=False):
        assert config.check == "values" and not config.verify
    config.update("jax_verify", "off")
    assert config.check == "values" and config.verify is config.jax_verify is False


def test_check_and_verify_in_the_environment():
    code = "from weft._engine.util.config import config; print(config.check, config.verify)"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "JAX_"))}
    for variables, expected in [
        ({"WEFT_VERIFY": "1"}, "types True"),
        ({"WEFT_CHECK": "values:5%", "WEFT_VERIFY": "yes"}, "types,values:5% True"),
        ({"JAX_CHECK": "maps"}, "maps False"),
        ({}, " False"),
    ]:
        run = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**env, **variables},
            check=True,
        )
        assert run.stdout == f"{expected}\n"


# ---- overrides

CONTEXTS = [
    (C.enable_x64, (), "enable_x64", True), (C.enable_x64, (False,), "enable_x64", False),
    (C.disable_jit, (), "disable_jit", True), (C.debug_nans, (True,), "debug_nans", True),
    (C.debug_infs, (True,), "debug_infs", True), (C.log_compiles, (), "log_compiles", True),
    (C.numpy_rank_promotion, ("warn",), "numpy_rank_promotion", "warn"),
    (C.numpy_dtype_promotion, ("strict",), "numpy_dtype_promotion", "strict"),
    (C.default_matmul_precision, ("bfloat16",), "default_matmul_precision", "bfloat16"),
    (C.default_device, ("cpu",), "default_device", "cpu"), (C.checking_leaks, (), "check_tracer_leaks", True),
    (C.threefry_partitionable, (False,), "threefry_partitionable", False),
    (C.transfer_guard, ("disallow",), "transfer_guard_host_to_device", "disallow"),
    (C.transfer_guard_device_to_host, ("log",), "transfer_guard_device_to_host", "log"),
    (C.default_prng_impl, ("rbg",), "default_prng_impl", "rbg"), (C.enable_custom_prng, (), "enable_custom_prng", True),
    (C.debug_key_reuse, (), "debug_key_reuse", True), (C.explain_cache_misses, (), "explain_cache_misses", True),
    (C.legacy_prng_key, ("error",), "legacy_prng_key", "error"), (C.enable_checks, (), "enable_checks", True),
    (C.softmax_custom_jvp, (False,), "softmax_custom_jvp", False),
]  # fmt: skip


@pytest.mark.parametrize("manager, args, name, value", CONTEXTS)
def test_context_managers(manager, args, name, value):
    before = config.read(name)
    with manager(*args):
        assert config.read(name) == value
        assert in_thread(lambda: config.read(name)) == before
    assert config.read(name) == before


def test_managers_know_their_flag():
    assert C.default_device.value is None
    with C.default_device("cpu"):
        assert C.default_device.value == "cpu"
    with pytest.raises(TypeError, match=r"default_device\(\) needs a value"):
        C.default_device()
    assert "64-bit" in C.enable_x64.__doc__
    assert repr(C.log_compiles) == "<context manager log_compiles>"


def test_ignored_flags_do_not_change_the_trace_key():
    before = config.trace_key()
    config.update("jax_mock_gpu_topology", "1x1x8")
    assert config.jax_mock_gpu_topology == "1x1x8"
    config.update("jax_optimization_level", 2)  # of whatever type
    assert config.trace_key() == before


def test_overrides_nest_and_survive_errors():
    with C.enable_x64():
        with pytest.raises(KeyError), C.enable_x64(False):
            assert config.enable_x64 is False
            raise KeyError
        assert config.enable_x64 is True
    assert config.enable_x64 is False


def test_one_manager_can_be_entered_again():
    manager = C.enable_x64()
    with manager, manager:
        assert config.enable_x64
    assert not config.enable_x64
    with manager:
        assert config.enable_x64
    assert not config.enable_x64


def test_managers_decorate_functions():
    @C.enable_x64()
    def probe():
        """Doc."""
        return config.enable_x64

    assert probe() is True
    assert probe.__doc__ == "Doc."
    assert config.enable_x64 is False


def test_update_reaches_other_threads_but_not_an_override():
    with C.enable_x64(False):
        config.update("enable_x64", True)
        assert config.enable_x64 is False
        assert in_thread(lambda: config.enable_x64) is True
    assert config.enable_x64 is True


def test_define():
    config.define("flag_of_this_test", 3, doc="only here")
    try:
        assert config.flag_of_this_test == config.jax_flag_of_this_test == 3
        with pytest.raises(ValueError, match="already defined"):
            config.define("flag_of_this_test", 4)
        config.update("flag_of_this_test", 5)
        assert config.values["flag_of_this_test"] == 5
        assert "flag_of_this_test=5" in repr(config)
    finally:
        del setting.declared["flag_of_this_test"]
        for prefix in ("", "jax_", "weft_"):
            delattr(C.Config, prefix + "flag_of_this_test")


# ---- trace keys


@pytest.mark.parametrize("name, value", [
    ("enable_x64", True), ("numpy_dtype_promotion", "strict"), ("numpy_rank_promotion", "raise"), ("jax_api", "0.10"),
    ("default_matmul_precision", "high"), ("threefry_partitionable", False), ("default_prng_impl", "rbg"),
    ("debug_nans", True), ("default_device", "cpu"), ("disable_jit", True),
])  # fmt: skip
def test_trace_key_follows_what_changes_tracing(name, value):
    before = config.trace_key()
    assert config.trace_key() is before
    with C.Override(**{name: value}):
        inside = config.trace_key()
        assert inside != before
        assert config.trace_key() is inside
        assert in_thread(config.trace_key) is before
    assert config.trace_key() is before
    config.update(name, value)
    assert config.trace_key() is inside


def test_trace_key_ignores_what_does_not():
    before = config.trace_key()
    with C.log_compiles(), C.transfer_guard("log"):
        assert config.trace_key() is before


def test_trace_key_under_an_override_sees_updates():
    with C.enable_x64():
        inside = config.trace_key()
        config.update("debug_nans", True)
        assert config.trace_key() is not inside
    assert config.trace_key() != inside


# ---- number of devices

DEVICES = [
    ({}, -1, 1),
    ({}, 6, 6),
    ({"WEFT_NUM_DEVICES": "8"}, 6, 8),
    ({"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}, 6, 4),
    ({"XLA_FLAGS": "--xla_a=1 --xla_force_host_platform_device_count=4 --xla_b"}, -1, 4),
    (
        {
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4 --xla_force_host_platform_device_count=2"
        },
        -1,
        2,
    ),
    ({"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "WEFT_NUM_DEVICES": "3"}, -1, 3),
    ({"XLA_FLAGS": "--xla_dump_to=/tmp"}, -1, 1),
    ({"WEFT_NUM_DEVICES": "512"}, -1, 512),
    ({"WEFT_NUM_DEVICES": ""}, -1, 1),
]


@pytest.mark.parametrize("variables, setting, expected", DEVICES)
def test_number_of_virtual_devices(monkeypatch, variables, setting, expected):
    monkeypatch.delenv("WEFT_NUM_DEVICES", raising=False)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    for variable, text in variables.items():
        monkeypatch.setenv(variable, text)
    with C.Override(num_cpu_devices=setting):
        assert C.num_virtual_devices() == expected


def test_the_dump_folder_of_the_peer_is_understood(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/some/where --xla_dump_hlo_as_text")
    assert C._xla_flag("xla_dump_to") == "/some/where"
    assert C._xla_flag("xla_dump") == ""


@pytest.mark.parametrize("text", ["0", "-1", "513", "eight", "2.5"])
def test_a_wrong_number_of_devices(monkeypatch, text):
    monkeypatch.setenv("WEFT_NUM_DEVICES", text)
    with pytest.raises(ValueError, match=f"WEFT_NUM_DEVICES is '{text}'.*between 1 and 512"):
        C.num_virtual_devices()
    monkeypatch.delenv("WEFT_NUM_DEVICES")
    monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count={text}")
    with pytest.raises(ValueError, match=r"XLA_FLAGS=.*between 1 and 512"):
        C.num_virtual_devices()


def test_a_setting_is_known_when_it_has_a_value(monkeypatch):
    """Other threads may read all values, and the key of traces, while one thread defines a setting."""

    def read(new):
        assert new.name not in C.config.values
        assert in_thread(C.config._new_key)
        return new.default

    monkeypatch.setattr(setting, "value_from_environment", read)
    context = C.make_user_context(7)
    assert C.config.values[context.__name__] == 7


def test_settings_of_a_program_are_read_while_it_is_traced():
    import weft

    context = weft.make_user_context()
    seen = []

    @weft.jit
    def f(x):
        seen.append(context.value)
        return x if context.value is None else x * context.value

    assert f(2.0) == 2.0 and f(2.0) == 2.0
    for value in (3.0, 4.0, 3.0):
        with context(value):
            assert (
                f(2.0) == 2 * value
                and context.value == value
                and in_thread(lambda: context.value) is None
            )
    assert seen == [None, 3.0, 4.0] and context.value is None
    before = context.get_global()
    context.set_global(5.0)
    try:
        assert f(2.0) == 10.0 and context.get_global() == in_thread(lambda: context.value) == 5.0
        with context(None):
            assert f(2.0) == 2.0 and context.get_global() == 5.0
    finally:
        context.set_global(before)
    other = weft.make_user_context("a")
    with other("b"), context((1, "a")):
        assert other.value == "b" and context.value == (1, "a")
    for bad in ([1], ([1],)):
        with pytest.raises(TypeError):
            context(bad)


def test_a_context_tells_what_other_threads_see():
    with C.numpy_rank_promotion("raise"):
        assert (
            C.numpy_rank_promotion.get_global() == "allow"
            and C.numpy_rank_promotion.value == "raise"
        )
    C.numpy_rank_promotion.set_global("warn")
    assert C.numpy_rank_promotion.get_global() == config.numpy_rank_promotion == "warn"
