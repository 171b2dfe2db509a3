"""Options of the clients of GPU plugins, from the environment and the settings."""

import pytest

from weft._engine.backends.pjrt import plugins
from weft._engine.util.config import Override


@pytest.fixture
def options_of(monkeypatch):
    """Return the options of the client of a platform's plugin, with these variables and settings."""

    def get(platform, given=None, variables=None, **settings):
        for name in (*plugins._GPU_VARIABLES, *(variables or {})):
            monkeypatch.setenv(name, (variables or {}).get(name, ""))
        kind = plugins._DEVICE_PLATFORMS.get(platform, platform)
        with Override(**settings):
            return plugins._client_options(plugins.Plugin(platform, kind, "path", 0, given or {}))

    return get


def test_gpus_have_options_of_the_environment(options_of):
    variables = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": ".5",
        "XLA_PYTHON_CLIENT_ALLOCATOR": "PLATFORM",
        "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB": "3",
        "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE": "1",
        "XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT": "0",
    }
    expected = {
        "platform_name": "cuda",
        "preallocate": False,
        "memory_fraction": 0.5,
        "allocator": "platform",
        "collective_memory_size": 3 << 20,
        "abort_collectives_on_failure": True,
        "use_tfrt_gpu_client": False,
    }
    assert options_of("cuda", variables=variables) == expected
    assert options_of("rocm") == {"platform_name": "rocm"}
    assert options_of("mychip", variables=variables, num_cpu_devices=3)["cpu_device_count"] >= 1
    assert options_of("tpu", variables=variables) == {}


@pytest.mark.parametrize("platform", ["cuda", "rocm", "oneapi"])
def test_visible_devices_are_those_of_the_setting(options_of, platform):
    name = f"{platform}_visible_devices"
    options = options_of(platform, **{name: "0,3"})
    assert options == {"platform_name": platform, "visible_devices": [0, 3]}
    with pytest.raises(ValueError, match=rf"{name} must be a number, got 'a'"):
        options_of(platform, **{name: "a"})


def test_wrong_variables_are_named(options_of):
    for variable in plugins._GPU_VARIABLES:
        if variable.endswith(("ALLOCATOR", "PREALLOCATE")):  # the plugin checks these
            continue
        with pytest.raises(ValueError, match=rf"{variable} must be a number, got 'half'"):
            options_of("cuda", variables={variable: "half"})


@pytest.mark.parametrize("setting", [{"a": "b", "n": 2}, "a:b;n:2"], ids=["dict", "text"])
def test_options_of_the_setting_are_those_of_all_clients(options_of, setting):
    for platform in ("mychip", "cuda", "tpu"):
        options = options_of(platform, given={"c": 1}, pjrt_client_create_options=setting)
        assert (options["a"], str(options["n"]), options["c"]) == ("b", "2", 1)
