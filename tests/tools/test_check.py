"""`weft check`: reports, exit status and reproducers."""

import re
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.harness.processes import run_weft
from tests.verification import faults
from weft._engine.ir.text.parse import JaxprSyntaxError, parse_jaxpr
from weft._engine.verification.minimize import Minimizer
from weft.tools.reproducer import mismatch_of, readable_text, reproduce, write_reproducer

FAULT = """
    import numpy as np, weft, weft.numpy as wnp
    from weft._engine import pipeline
    from weft._engine.ir.registry import registry
    inner = pipeline.simplify
    def wrong(jaxpr):
        made = inner(jaxpr)
        swap = lambda e: e.replace(primitive=registry["cos"]) if e.primitive.name == "sin" else e
        return made.replace(eqns=[swap(e) for e in made.eqns])
    pipeline.simplify = wrong
"""
STEP = """
    @weft.jit
    def step(x, w):
        h = wnp.tanh(x @ w) + 1
        return wnp.exp(wnp.sin(h * 3)).sum(0), h
"""


def run(tmp_path, body, *arguments, **environment):
    text = "\n".join(line[4:] for line in (FAULT + STEP + body).splitlines())
    (tmp_path / "script.py").write_text(text)
    return run_weft("check", "script.py", *arguments, cwd=tmp_path, **environment)


def test_a_right_program_is_reported_right(tmp_path):
    (tmp_path / "script.py").write_text(
        "import weft, sys\nprint(weft.jit(lambda x: x + 1)(2.0), sys.argv[1:])\n"
    )
    done = run_weft("check", "script.py", "a", "--b", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "3.0 ['a', '--b']\n"
    assert re.search(r"weft check: \d+ calls? (was|were) compared, none was wrong\.", done.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_a_wrong_program_has_a_small_reproducer(tmp_path):
    done = run(tmp_path, "\n    step(np.ones((40, 30), 'f4'), np.ones((30, 20), 'f4') / 50)\n")
    assert done.returncode == 1
    assert "weft.errors.VerificationError: jit(step): result 0 (float32[20]) differs" in done.stderr
    assert re.search(r"at fault: simplify, equation cos at script.py:\d+ in step", done.stderr)
    assert re.search(r"reproducer: weft_check_\d+_1.py \(1 equation\)", done.stderr)
    (file,) = tmp_path.glob("weft_check_*.py")
    text = file.read_text()
    assert text.count(" = sin ") == 1 and "tanh" not in text and "differs after simplify" in text
    again = subprocess.run(
        [sys.executable, file.name], cwd=tmp_path, capture_output=True, text=True
    )
    assert (
        again.stdout == "The compiled program gives the results of its operations.\n"
        and again.returncode == 0
    ), again.stderr


def test_an_error_that_the_program_catches_is_reported(tmp_path):
    done = run(tmp_path, """
    try:
        step(np.ones((4, 3), 'f4'), np.ones((3, 2), 'f4'))
    except weft.errors.VerificationError:
        print("caught")
""")  # fmt: skip
    assert done.returncode == 1 and done.stdout == "caught\n"
    assert "compared, 1 was wrong" in done.stderr and "wrong call 1" in done.stderr


def test_the_share_of_the_environment_is_kept(tmp_path):
    (tmp_path / "script.py").write_text("import weft\nprint(weft.config.check)\n")
    assert (
        run_weft(
            "check", "script.py", cwd=tmp_path, WEFT_CHECK="memory,values:5%", WEFT_VERIFY="0"
        ).stdout
        == "memory,values:5%\n"
    )
    assert (
        run_weft("check", "script.py", cwd=tmp_path, WEFT_CHECK="types").stdout == "types,values\n"
    )


# ---- reproducers


def program_of(fun, *args):
    return weft.jit(fun).trace(*args).jaxpr.replace(name="traced")


def test_minimizing_leaves_the_equation_at_fault(monkeypatch):
    x = np.linspace(0, 1, 12, dtype=np.float32)
    program = program_of(lambda x: wnp.exp(wnp.cumsum(wnp.sin(wnp.sqrt(x) + 1) * 2)) - x, x)
    faults.in_lowering(monkeypatch, "sin", "cos")
    sizes = []
    made, args = Minimizer(
        mismatch_of, on_smaller_case=lambda program, args: sizes.append(len(program.eqns))
    ).minimize(program, [x], 0)
    assert [e.primitive.name for e in made.eqns] == ["sin"] and sizes[0] >= 6 and sizes[-1] == 1
    np.testing.assert_allclose(args[0], np.sqrt(x) + 1, rtol=1e-6)
    assert mismatch_of(made, args) is not None
    monkeypatch.undo()
    assert (
        mismatch_of(made, args) is None and Minimizer(mismatch_of).minimize(program, [x], 0) is None
    )


def test_minimizing_keeps_operations_that_fail_together(monkeypatch):
    x = np.linspace(0, 1, 12, dtype=np.float32)
    program = program_of(lambda x: wnp.sort(wnp.sin(wnp.exp(x)) * 2) + 1, x)
    fails = lambda program, args: {"mul", "sort"} <= {e.primitive.name for e in program.eqns}
    made, _ = Minimizer(fails).minimize(program, [x], 0)
    assert [e.primitive.name for e in made.eqns] == ["mul", "sort"]


def test_minimizing_ends_in_time(monkeypatch):
    x = np.ones(3, np.float32)
    program = program_of(lambda x: wnp.sin(x) * 2, x)
    calls = []
    assert (
        Minimizer(lambda *case: calls.append(case) or True, seconds=0).minimize(program, [x], 0)
        is None
        and not calls
    )


@pytest.mark.parametrize("size", [5, 500], ids=["inline", "npz"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64", "float64"])
def test_a_reproducer_has_the_program_and_its_arguments(size, dtype, tmp_path, capsys, monkeypatch):
    with weft.enable_x64(True):
        x = np.asarray(wnp.arange(size).astype(dtype))
        program = program_of(lambda x: x + x, x)
    write_reproducer(tmp_path / "case.py", program, [x], 'a "title"\nand \\ details')
    assert (tmp_path / "case.npz").exists() == (size > 64)
    scope = {"__name__": "case", "__file__": str(tmp_path / "case.py")}
    exec((tmp_path / "case.py").read_text(), scope)
    assert str(parse_jaxpr(scope["PROGRAM"])) == str(program)
    reproduce(scope["PROGRAM"], scope["ARGUMENTS"])
    assert "gives the results" in capsys.readouterr().out
    if dtype == "float32":
        faults.in_simplify(monkeypatch, "add", "mul")
        with pytest.raises(weft.errors.VerificationError):
            reproduce(scope["PROGRAM"], scope["ARGUMENTS"])


def test_a_program_with_a_callback_has_no_text():
    program = program_of(
        lambda x: weft.pure_callback(np.sin, weft.ShapeDtypeStruct((), np.float32), x),
        np.float32(1),
    )
    with pytest.raises(JaxprSyntaxError):
        readable_text(program)
