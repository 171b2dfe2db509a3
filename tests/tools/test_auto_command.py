"""`weft auto`: the largest jitted function of a program is planned."""

import html
import textwrap

import pytest

import weft
from tests.harness.page_tags import Tags
from tests.harness.processes import run_weft
from weft.tools.auto_command import AutoOptions, parse_mesh, plan_program
from weft.tools.cli import parse

TRAIN = """
import functools, sys
import jax, jax.numpy as jnp, numpy as np

def loss(params, x):
    return ((jnp.tanh(x @ params["up"]) @ params["down"]) ** 2).mean()

@functools.partial(jax.jit, donate_argnums=0)
def step(params, x):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

@jax.jit
def small(x):
    return x + 1

if __name__ == "__main__":
    ones = lambda *shape: np.ones(shape, np.float32)
    params = {"up": ones(128, 512), "down": ones(512, 128)}
    params = step(params, small(ones(64, 128)))
    print("ran on", len(jax.devices()), "devices with", sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path):
    def write(text, name="train.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return name

    return write


def test_command_plans_the_step_of_a_script(script, tmp_path):
    words = ["--mesh", "8", "--html", "plan.html", "--save", "plan.json", "--", "--mesh", "3"]
    run = run_weft("auto", script(TRAIN), *words, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("ran on 8 devices with ['--mesh', '3']\n")
    assert "\nstep, " in run.stdout
    assert "params['down'] is P('x',): the next best layout, " in run.stdout
    assert "train.py:6 in loss:" in run.stdout
    assert "Compared with:" in run.stdout

    page = (tmp_path / "plan.html").read_text()
    Tags().feed(page)
    assert "params['up']" in html.unescape(page)

    plan = weft.auto.load(tmp_path / "plan.json")
    assert [v.path for v in plan.inputs] == ["[0]['down']", "[0]['up']", "[1]"]
    assert [v.name for v in plan.inputs] == ["params['down']", "params['up']", "x"]
    assert plan.donate_argnums == (0,)
    assert plan.mesh.shape_tuple == (("x", 8),)


def test_present_machine_is_measured(script, tmp_path):
    run = run_weft("auto", script(TRAIN), "--mesh", "2", "--machine", "measure", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "plan for (('x', 2),): " in run.stdout and "s, sends" in run.stdout


def test_saved_plan_is_for_the_function_of_the_script(script, tmp_path):
    script(
        """
        import weft, train, numpy as np
        ones = lambda *shape: np.ones(shape, np.float32)
        args = {"up": ones(128, 512), "down": ones(512, 128)}, ones(64, 128)
        plan = weft.auto.load("plan.json")
        out = plan.jit(train.step.__wrapped__)(*plan.place(args))
        print(out["down"].sharding.spec, out["down"].sharding.mesh.shape_tuple)
        """,
        "use.py",
    )
    name = script(TRAIN)
    first = run_weft("auto", "--mesh", "data=4,model=2", "--save", "plan.json", name, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    run = run_weft("run", "--devices", "8", "use.py", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "(('data', 4), ('model', 2))" in run.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise KeyError('missing')", "train.py ended with exit status 1; nothing is planned."),
        ("import sys; sys.exit(3)", "train.py ended with exit status 3; nothing is planned."),
        (
            "import sys; sys.exit('no data')",
            "no data\nweft auto: train.py ended with exit status 1",
        ),
        ("import jax.numpy as jnp; jnp.ones(3) + 1", "train.py called no jitted function."),
        ("def f(:", "train.py ended with exit status 1"),
        (None, "weft: cannot read 'train.py'"),
    ],
    ids=["error", "exit", "exit with text", "no function", "syntax", "no file"],
)
def test_script_that_cannot_be_planned(text, message, script, tmp_path):
    if text is not None:
        script(text)
    run = run_weft("auto", "train.py", "--mesh", "8", cwd=tmp_path)
    assert run.returncode == 2
    assert message in run.stderr
    assert "Arguments:" not in run.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": "4x"}, "--mesh 4x: expected sizes such as 8 or 4x2"),
        ({"mesh": "4xtwo"}, "--mesh 4xtwo: expected sizes"),
        ({"mesh": "0x2"}, "--mesh 0x2: expected sizes"),
        ({"mesh": ""}, "--mesh : expected sizes"),
        ({"mesh": "data=4,data=2"}, "expected sizes such as"),
        ({"mesh": "1x1x1x1x1x1x1"}, "a mesh has at most 6 axes"),
        ({"mesh": "64x64"}, "needs 4,096 devices. A process has at most 512 virtual devices"),
        ({"mesh": "8", "machine": "abacus"}, "unknown machine 'abacus'"),
        ({"mesh": "8", "html": "/no/such/page.html"}, "/no/such/page.html cannot be written"),
    ],
)
def test_options_are_checked_before_the_program_runs(options, message, capsys):
    assert plan_program(AutoOptions("no-such-program.py", (), **options)) == 2
    err = capsys.readouterr().err
    assert err.startswith("weft auto: ")
    assert message in err


def test_mesh_needs_the_devices_of_the_process(script, tmp_path):
    name = script(
        """
        import os
        os.environ["WEFT_NUM_DEVICES"] = "2"
        import jax, numpy as np
        jax.jit(lambda x: x @ x)(np.ones((8, 8)))
        """
    )
    run = run_weft("auto", name, "--mesh", "4", cwd=tmp_path)
    assert run.returncode == 2
    assert "the mesh needs 4 devices, and the program has 2." in run.stderr


def test_names_of_axes():
    assert parse_mesh("2x2x2") == {"x": 2, "y": 2, "z": 2}
    assert parse_mesh("data=4, model=2") == {"data": 4, "model": 2}


def test_mesh_must_be_given(capsys):
    with pytest.raises(SystemExit):
        parse(["auto", "train.py"])
    assert "weft auto: give the mesh to shard over" in capsys.readouterr().err
