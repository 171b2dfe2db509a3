"""Plugins are found, chosen and configured; `weft info` lists why one is not used."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.accelerators.plugin import PLUGIN
from tests.harness.processes import ROOT, run_python, run_weft

#: no settings of the test process
NEUTRAL = {"WEFT_BACKEND": "", "JAX_PLATFORMS": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
XLA = {**NEUTRAL, "PJRT_NAMES_AND_LIBRARY_PATHS": f"xla:{PLUGIN}"}
FIRST = "import weft, weft.numpy as wnp; print(weft.default_backend(), wnp.ones(3).devices())"


#: faults of plugins, with a text of the error
BROKEN = {
    "absent": "cannot be loaded",
    "text": "cannot be loaded",
    "other library": "GetPjrtApi",
    "other processor": "may be for another processor",
    "no path": "must be NAME:PATH pairs",
    "absent options": "absent.json",
    "unknown option": "flux_capacitors",
}


@pytest.fixture(params=BROKEN)
def broken(request, devices, tmp_path):
    """Return a plugin that does not work: the variables of the environment that name it, and a text of its error."""
    if request.param == "unknown option" and devices[0].client.client.library.version < (0, 115):
        pytest.skip("this plugin ignores options that it does not know")
    return make_broken(request.param, tmp_path), BROKEN[request.param]


def make_broken(kind, folder):
    """Return the variables of the environment that name a plugin which does not work."""
    path = folder / "plugin.so"
    variables = dict(NEUTRAL)
    if kind == "text":
        path.write_text("not a library, but longer than the header of one" * 10)
    elif kind == "other library":
        shutil.copy(np.linalg._umath_linalg.__file__, path)
    elif kind == "other processor":
        library = bytearray(Path(np.linalg._umath_linalg.__file__).read_bytes())
        library[18:20] = b"\xb7\x00" if library[18] != 0xB7 else b"\x3e\x00"  # the machine in ELF
        path.write_bytes(library)
    elif kind == "absent options":
        path = PLUGIN
        variables["PJRT_MYCHIP_CREATE_OPTIONS"] = str(folder / "absent.json")
    elif kind == "unknown option":
        path, options = PLUGIN, folder / "options.json"
        options.write_text('{"create_options": {"flux_capacitors": 3}}')
        variables["PJRT_MYCHIP_CREATE_OPTIONS"] = str(options)
    name = "mychip" if kind == "no path" else f"mychip:{path}"
    return {**variables, "PJRT_NAMES_AND_LIBRARY_PATHS": name}


def test_a_broken_plugin_is_listed_and_not_raised(broken):
    variables, reason = broken
    done = run_python("-c", FIRST, **variables)
    assert done.stdout.startswith("cpu {CpuDevice"), done.stderr
    info = run_weft("info", **variables)
    (line,) = [line for line in info.stdout.splitlines() if line.startswith("plugins")]
    assert info.returncode == 0 and "mychip" in line and reason in line


def test_a_broken_plugin_is_raised_where_it_is_chosen(broken):
    variables, reason = broken
    variables["WEFT_PLATFORMS"] = "mychip"
    done = run_python("-c", FIRST, **variables)
    last = [line for line in done.stderr.splitlines() if "Unable to initialize" in line]
    assert done.returncode == 1 and "'mychip'" in last[0] and reason in last[0]
    info = run_weft("info", **variables)
    (line,) = [line for line in info.stdout.splitlines() if line.startswith("devices")]
    assert info.returncode == 0 and reason in line


def test_absent_platforms_name_what_installs_them():
    for platform, advice in (("tpu", "extra [tpu]"), ("mychip", "its package")):
        done = run_python("-c", FIRST, **{**NEUTRAL, "WEFT_PLATFORMS": platform})
        assert (
            done.returncode == 1
            and f"Install {'weft with the ' * (platform == 'tpu')}{advice}." in done.stderr
        )


PLACE = f"""
import weft, weft.numpy as wnp
from weft._engine.backends import describe_plugins
print(wnp.ones(3).devices(), describe_plugins()[0], {PLUGIN!r} in open("/proc/self/maps").read())
"""


def test_hidden_plugins_are_not_loaded():
    shown, hidden = [run_python("-c", PLACE, **{**XLA, "JAX_PLATFORMS": x}) for x in ("", "cpu")]
    assert "XlaDevice" in shown.stdout and shown.stdout.endswith("True\n"), shown.stderr
    assert "CpuDevice" in hidden.stdout and hidden.stdout.endswith("False\n"), hidden.stderr
    assert "not used, as WEFT_PLATFORMS is 'cpu'" in hidden.stdout


def run_as_shim(text, **variables):
    """Run a program whose `import jax` imports weft."""
    return run_python(
        "-c", f"from weft.compat import install_as_jax; install_as_jax()\n{text}", **variables
    )


def test_imports_load_no_plugin_and_settings_may_follow():
    program = """
import os, jax, jax.numpy as jnp, jax.random, jax.scipy.linalg
assert "%s" not in open("/proc/self/maps").read()
%s
print(jax.devices()[0], jax.device_count(), jnp.ones(3).devices())
"""
    settings = {
        'jax.config.update("jax_platforms", "cpu")': "cpu:0",
        'jax.config.update("jax_num_cpu_devices", 3)': "xla:0 3 ",
        'jax.config.update("jax_pjrt_client_create_options", {"cpu_device_count": 5})': "xla:0 5 ",
    }
    for setting, start in settings.items():
        done = run_as_shim(program % (PLUGIN, setting), **XLA, WEFT_NUM_DEVICES="", XLA_FLAGS="")
        assert done.stdout.startswith(start), done.stderr


def test_both_ways_to_choose_are_an_error():
    for name in ("WEFT_PLATFORMS", "JAX_PLATFORMS"):
        done = run_python("-c", FIRST, **{**XLA, name: "xla", "WEFT_BACKEND": "cpu"})
        assert done.returncode == 1 and "both choose the default backend" in done.stderr


def test_options_are_those_of_the_client():
    program = f"""
import weft
from weft.extend.backend import register_plugin
register_plugin("first", library_path={PLUGIN!r}, options={{"cpu_device_count": 3}})
register_plugin("second", library_path={PLUGIN!r}, options=lambda: {{"cpu_device_count": 2}}, priority=401)
print(len(weft.devices("first")), len(weft.devices("second")), weft.devices()[0])
register_plugin("third", library_path={PLUGIN!r}, options={{"cpu_device_count": object()}})
weft.devices("third")
"""
    done = run_python("-c", program, **NEUTRAL, WEFT_NUM_DEVICES="", XLA_FLAGS="")
    assert done.stdout == "3 2 second:0\n", done.stderr
    assert (
        "TypeError" in done.stderr and "option 'cpu_device_count' of a PJRT plugin" in done.stderr
    )


MODULE = """
from jax._src import xla_bridge
calls = []
def initialize():
    calls.append(1)
    xla_bridge.register_plugin("mychip", library_path=%r, priority=500, options={"cpu_device_count": 2})
"""


def test_plugins_of_other_packages_register_themselves(tmp_path):
    """One is both a module of the namespace package and an entry point; one fails."""
    package, facts = tmp_path / "jax_plugins", tmp_path / "mychip-1.0.dist-info"
    package.mkdir(), facts.mkdir()
    (package / "mychip.py").write_text(MODULE % PLUGIN)
    (package / "faulty.py").write_text("raise OSError('no driver')")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mychip\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[jax_plugins]\nmychip_entry = jax_plugins.mychip\n")
    program = """
import jax
print(jax.devices("mychip"))
from jax_plugins import mychip
from weft._engine.backends import describe_plugins
print(len(mychip.calls), *describe_plugins(), sep="\\n")
"""
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    variables = {**NEUTRAL, "WEFT_NUM_DEVICES": "", "XLA_FLAGS": "", "PYTHONPATH": path}
    done = run_as_shim(program, **variables)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["[MychipDevice(id=0), MychipDevice(id=1)]", "1"], done.stderr
    assert any(line.startswith(f"mychip ({PLUGIN}): 2 cpu, C API 0.") for line in lines)
    assert "faulty: OSError: no driver" in lines and len(lines) == 4


PROCESSES = """
import sys, weft, weft.numpy as wnp
weft.distributed.initialize("localhost:" + sys.argv[1], 2, int(sys.argv[2]))
for _ in range(2):
    try:
        wnp.ones(3)
    except NotImplementedError as error:
        print(error)
"""


def test_several_processes_are_refused_by_name():
    """Also without WEFT_PLATFORMS: each process would compute on its own."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", PROCESSES, str(port)]
    environment = {**os.environ, **XLA, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen([*command, str(rank)], env=environment, stdout=-1, stderr=-1, text=True)
        for rank in range(2)
    ]
    for output, errors in [process.communicate(timeout=120) for process in running]:
        assert output.count("'xla' runs in one process; this program has 2") == 2, errors
        assert "key-value callbacks" in output and "WEFT_PLATFORMS=cpu" in output
