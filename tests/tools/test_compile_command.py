"""`weft compile`: its reports, where it stops, what it refuses; on devices without a plugin."""

import json
import textwrap

import pytest

from tests.harness.processes import run_python, run_weft
from weft.tools.cli import parse

#: runs the command for devices of `tests.harness.topology` in the place of a plugin's
DRIVER = """
import sys
from tests.harness.topology import Topology
from weft._engine.backends.pjrt import topology
from weft.tools import cli, compile_command

def describe(platform, name, options, calls):
    return topology.TopologyBackend("tpu", Topology(8), calls)

compile_command.describe = describe
sys.exit(cli.main(["compile", "--target", "v5e:2x4", *sys.argv[1:]]))
"""

#: runs the command as on a machine without plugins
WITHOUT_PLUGINS = """
import sys
from weft._engine.backends.pjrt import plugins
from weft.tools import cli

plugins.find_plugin = lambda platform: None
sys.exit(cli.main(["compile", "--target", "h100:8", "script.py"]))
"""

READING = 'print(f"loss {value:.3f}")'
TRAINING = """
import sys
import jax, jax.numpy as jnp, numpy as np
from functools import partial
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("data", "model"))
rows = NamedSharding(mesh, P("data"))
print("on", jax.default_backend(), jax.device_count(), jax.local_device_count(), jax.devices("tpu")[0].device_kind)
print("arguments", sys.argv[1:])
params = {"w": 0.1 * jax.random.normal(jax.random.key(0), (16, 16))}
params = jax.device_put(params, NamedSharding(mesh, P(None, "model")))

def loss(p, x):
    return jnp.mean((x @ p["w"] - x) ** 2)

@partial(jax.jit, donate_argnums=0)
def train_step(p, x):
    value, grad = jax.value_and_grad(loss)(p, x)
    return jax.tree.map(lambda a, b: a - 0.1 * b, p, grad), value

for step in range(3):
    params, value = train_step(params, jax.device_put(np.ones((8, 16), np.float32), rows))
print("trained")
print(f"loss {value:.3f}")
jax.jit(loss)(params, np.ones((8, 16), np.float32))
"""


@pytest.fixture
def compile_script(tmp_path):
    """Run a script for the devices without a plugin; return the process and its reports."""

    def run(text, *words, **options):
        (tmp_path / "script.py").write_text(textwrap.dedent(text))
        done = run_python(
            "-c", DRIVER, "--json", "reports.json", "script.py", *words, cwd=tmp_path, **options
        )
        reports = tmp_path / "reports.json"
        return done, json.loads(reports.read_text()) if reports.exists() else None

    return run


def test_a_training_script_is_compiled_up_to_its_first_value(compile_script):
    done, data = compile_script(TRAINING, "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert "on tpu 8 8 Test chip\narguments ['--epochs', '3']" in done.stdout
    place = f"script.py:{TRAINING.splitlines().index(READING) + 1}"
    assert f"trained\nStopped at {place}, which reads the value of an array:\n    {READING}\n" in (
        done.stdout
    )
    assert done.stdout.endswith("1 program was compiled.\n")
    assert (data["target"], data["plugin"]) == ("v5e:2x4", "test 1.0")
    assert data["stopped_at"] == place
    (report,) = data["programs"]
    assert report["name"] == "jit(train_step)" and report["num_devices"] == 8
    assert "psum" in [total["kind"] for total in report["collectives"]]
    assert all(total["bytes"] > 0 < total["count"] for total in report["collectives"])
    assert report["lines"] > 10 and report["memory"]["argument_size_in_bytes"] == 3
    assert report["cost"]["flops"] == 7.0 and report["error"] == ""
    assert report["weft_seconds"] > 0 and report["plugin_seconds"] >= 0


def test_reports_are_printed(compile_script):
    done, _ = compile_script(
        """
        import jax, numpy as np
        jax.jit(lambda x: x @ x.T)(np.ones((4, 4), np.float32))
        """
    )
    assert done.stdout.startswith("jit(<lambda>) for 1 x Test chip\n  program     ")
    assert "\n  collectives none\n  memory      arguments 3 B, results 0 B" in done.stdout
    assert "peak 0 B of 1,073,741,824 B\n" in done.stdout
    assert "\n  cost        7 flops, 8 B accessed, 1 us at best\n" in done.stdout
    assert "of weft, " in done.stdout and " of the plugin\n" in done.stdout


def test_a_refused_program_does_not_end_the_script(compile_script):
    done, data = compile_script(
        """
        import jax, jax.numpy as jnp
        jax.jit(jnp.sin)(jax.jit(lambda x: jnp.sin(x) + 1)(jnp.ones(3)))
        jax.jit(lambda x: x + 2)(jnp.ones(3))
        print("to the end")
        """
    )
    assert done.returncode == 1 and "to the end" in done.stdout
    assert [bool(report["error"]) for report in data["programs"]] == [True, False]
    assert "\n  refused     INVALID_ARGUMENT: no sine\n" in done.stdout
    assert done.stdout.endswith("2 programs were compiled, 1 refused.\n")


def test_lowered_programs_are_compiled_without_a_call(compile_script):
    done, data = compile_script(
        """
        import jax, jax.numpy as jnp
        lowered = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((4,), jnp.float32))
        print(lowered.compile().memory_analysis().argument_size_in_bytes)
        jax.jit(lambda x: x * 3).lower(jax.ShapeDtypeStruct((4,), jnp.float32)).compile()
        """
    )
    assert done.stdout.startswith("3\n")
    assert len(data["programs"]) == 2 and data["stopped_at"] == ""


def test_errors_of_the_script_are_its_own(compile_script):
    done, data = compile_script(
        "import jax\njax.jit(lambda x: x + 1)(1.0)\nraise KeyError('mine')\n"
    )
    assert (
        done.returncode == 1 and "KeyError: 'mine'" in done.stderr and "Stopped" not in done.stdout
    )
    assert len(data["programs"]) == 1


def test_exit_statuses_of_the_script_stay(compile_script):
    done, data = compile_script("import sys\nsys.exit(3)\n")
    assert done.returncode == 3 and data["programs"] == []


def test_mapped_functions_are_reported(compile_script):
    done, data = compile_script(
        """
        import jax, jax.numpy as jnp
        jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(jnp.ones((8, 3)))
        """
    )
    (report,) = data["programs"]
    assert report["num_devices"] == 8
    assert [total["kind"] for total in report["collectives"]] == ["psum"], done.stderr


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("x100:8", "target 'x100:8': unknown kind of devices 'x100'"),
        ("v5p:8", "v5p chips are linked along 3 dims"),
    ],
)
def test_unknown_targets_are_refused(tmp_path, target, message):
    (tmp_path / "script.py").write_text("print('ran')")
    done = run_weft("compile", "--target", target, "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("weft compile: ") and message in done.stderr


def test_a_target_without_its_plugin_names_the_package(tmp_path):
    (tmp_path / "script.py").write_text("print('ran')")
    done = run_python("-c", WITHOUT_PLUGINS, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "weft compile: '1x1x8' needs the PJRT plugin of the platform 'cuda'" in done.stderr
    assert "Install weft with the extra [cuda13]." in done.stderr


@pytest.mark.parametrize(
    ("line", "target", "json_file", "arguments"),
    [
        ("compile --target h100:8 s.py", "h100:8", None, []),
        ("compile s.py --target h100:8", "h100:8", None, []),
        ("compile s.py a --target=v5e:2x4 --json f.json b", "v5e:2x4", "f.json", ["a", "b"]),
        (
            "compile --json f.json --target v5e:2x4 s.py --epochs 3",
            "v5e:2x4",
            "f.json",
            ["--epochs", "3"],
        ),
        ("compile --target h100:8 s.py -- --json 3", "h100:8", None, ["--json", "3"]),
        ("compile --target h100:8 s.py --devices 4", "h100:8", None, ["--devices", "4"]),
        ("compile --target h100:8 -m s.py -h", "h100:8", None, ["-h"]),
    ],
)
def test_options_stand_on_both_sides_of_the_program(line, target, json_file, arguments):
    options = parse(line.split())
    assert (options.target, options.json, options.program) == (target, json_file, "s.py")
    assert options.arguments == arguments


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("compile s.py", "weft compile: give the devices to compile for, as in --target v5p:8x8x8"),
        ("compile s.py --target", "argument --target: expected one argument"),
        ("compile --target h100:8", "the following arguments are required: PROGRAM"),
        ("compile --target h100:8 s.py --html f", "--html is an option of 'weft explain'"),
    ],
)
def test_command_lines_without_a_meaning_are_refused(line, message, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(line.split())
    assert stop.value.code == 2 and message in capsys.readouterr().err


def test_help_names_the_options(capsys):
    with pytest.raises(SystemExit):
        parse(["compile", "--help"])
    told = capsys.readouterr().out
    assert "--target and --json may also follow PROGRAM" in told and "--target NAME" in told
