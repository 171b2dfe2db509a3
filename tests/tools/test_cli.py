"""The command `weft`, run as people run it: in a process of its own."""

import re
import textwrap

import pytest

import weft
from tests.harness.processes import run_weft
from weft.tools.cli import parse


@pytest.fixture
def script(tmp_path):
    def write(text, name="script.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return name

    return write


@pytest.mark.parametrize(
    ("line", "devices", "program", "arguments"),
    [
        ("run s.py", None, "s.py", []),
        ("run --devices 4 s.py", 4, "s.py", []),
        ("run s.py --devices 4", 4, "s.py", []),
        ("run s.py --devices=4 a", 4, "s.py", ["a"]),
        ("run --devices 4 s.py --devices 8", 8, "s.py", []),
        ("run s.py a --b c -d", None, "s.py", ["a", "--b", "c", "-d"]),
        ("run s.py -h", None, "s.py", ["-h"]),
        ("run s.py --dev 4", None, "s.py", ["--dev", "4"]),
        ("run s.py a -- --devices 4", None, "s.py", ["a", "--devices", "4"]),
        ("run s.py -- a -- b", None, "s.py", ["a", "--", "b"]),
        ("run -- s.py --devices 4", None, "s.py", ["--devices", "4"]),
        ("run --devices 4 -- s.py -- a", 4, "s.py", ["--", "a"]),
        ("run s.py -- --html page.html", None, "s.py", ["--html", "page.html"]),
        ("run s.py a -m b --devices 4 --version", 4, "s.py", ["a", "-m", "b", "--version"]),
        ("run -m pack.part -m b", None, "pack.part", ["-m", "b"]),
    ],
)
def test_words_go_where_they_belong(line, devices, program, arguments):
    options = parse(line.split())
    assert (options.devices, options.program, options.arguments) == (devices, program, arguments)


@pytest.mark.parametrize(
    ("line", "html", "devices", "arguments"),
    [
        ("explain s.py", None, None, []),
        ("explain --html p.html s.py a", "p.html", None, ["a"]),
        ("explain s.py a --html p.html b", "p.html", None, ["a", "b"]),
        ("explain s.py --html=p.html --devices 2 --epochs 3", "p.html", 2, ["--epochs", "3"]),
        ("explain --html p.html s.py --html q.html", "q.html", None, []),
        ("explain --html p.html s.py -- --html q.html", "p.html", None, ["--html", "q.html"]),
        ("explain -m s.py --htm p.html", None, None, ["--htm", "p.html"]),
    ],
)
def test_explain_writes_its_page_wherever_the_option_stands(line, html, devices, arguments):
    options = parse(line.split())
    assert (options.program, options.html, options.devices, options.arguments) == (
        "s.py",
        html,
        devices,
        arguments,
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "run s.py --html page.html",
            "weft run: error: --html is an option of 'weft explain'; if the program has one of this name",
        ),
        ("run s.py --html", "--html is an option of 'weft explain'"),
        ("run --html page.html s.py", "--html is an option of 'weft explain'"),
        ("run s.py --devices", "argument --devices: expected one argument"),
        ("explain s.py --html", "weft explain: error: argument --html: expected one argument"),
        ("explain s.py --devices none", "from 1 to 512, got 'none'"),
        ("run --fast s.py", "unrecognized arguments: --fast"),
        ("run --dev=4 s.py", "unrecognized arguments: --dev=4"),
        ("run --devices 4", "the following arguments are required: PROGRAM"),
        ("info --devices 4", "unrecognized arguments: --devices 4"),
        ("--devices 4 run s.py", "weft: error: "),
    ],
)
def test_what_is_not_understood_is_refused(line, message, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(line.split())
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "explain", "check", "profile"])
def test_help_says_which_options_may_follow_the_program(command, capsys):
    with pytest.raises(SystemExit):
        parse([command, "--help"])
    told = capsys.readouterr().out
    assert (
        "may also follow PROGRAM" in told
        and "--devices N" in told
        and ("--html FILE" in told) == (command in ("explain", "profile"))
    )


@pytest.mark.parametrize("count", ["0", "513", "eight", "-1"])
def test_device_counts_out_of_range_are_refused(count, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["run", f"--devices={count}", "s.py"])
    assert stop.value.code == 2
    assert "from 1 to 512" in capsys.readouterr().err


def test_the_script_sees_its_own_arguments_folder_and_devices(tmp_path, script):
    (tmp_path / "sub").mkdir()
    script("value = 42\n", "sub/beside.py")
    name = script(
        """
        import os, sys
        import beside
        print(__name__, __file__, sys.argv, beside.value, os.environ["WEFT_NUM_DEVICES"])
        print(os.path.basename(sys.path[0]), sys.modules["__main__"].beside is beside)
        """,
        "sub/main.py",
    )
    done = run_weft("run", name, "--devices", "4", "--fast", "x", cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "__main__ sub/main.py ['sub/main.py', '--fast', 'x'] 42 4",
        "sub True",
    ], done.stderr


def test_import_jax_means_weft(tmp_path, script):
    name = script("import jax, jax.debug\nprint(jax.debug.visualize_sharding.__module__)\n")
    assert run_weft("run", name, cwd=tmp_path).stdout == "weft.debug\n"


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit('no luck')", 1, "no luck\n"),
        ("raise KeyError('x')", 1, "KeyError: 'x'\n"),
        ("x = (", 1, "SyntaxError: '(' was never closed\n"),
    ],
)
def test_the_exit_status_is_the_scripts(tmp_path, script, text, status, message):
    done = run_weft("run", script(text), cwd=tmp_path)
    assert done.returncode == status
    assert done.stderr.endswith(message)


def test_a_traceback_begins_in_the_script(tmp_path, script):
    name = script("""
        def f():
            return 1 / 0

        f()
    """)
    done = run_weft("run", name, cwd=tmp_path)
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == '  File "script.py", line 5, in <module>'
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "weft" not in done.stderr


def test_a_module_runs_as_python_dash_m_would(tmp_path, script):
    (tmp_path / "pack").mkdir()
    script("", "pack/__init__.py")
    script(
        "from . import part; import sys; print(part.x, sys.argv[1:], __name__)", "pack/__main__.py"
    )
    script("x = 5", "pack/part.py")
    assert run_weft("run", "-m", "pack", "a", cwd=tmp_path).stdout == "5 ['a'] __main__\n"
    missing = run_weft("run", "-m", "nowhere.at.all", cwd=tmp_path)
    assert missing.returncode == 2 and "no module of that name" in missing.stderr


def test_a_missing_script_is_said_in_a_line(tmp_path):
    done = run_weft("run", "nowhere.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "weft: cannot read 'nowhere.py': No such file or directory\n"


def test_version_and_info(tmp_path):
    assert run_weft("--version", cwd=tmp_path).stdout == f"weft {weft.__version__}\n"
    info = run_weft("info", cwd=tmp_path, JAX_ENABLE_X64="1", JAX_OTHER="1")
    assert info.returncode == 0, info.stderr
    assert (
        "processor" in info.stdout
        and "llvmlite" in info.stdout
        and "WEFT_NUM_DEVICES" in info.stdout
    )
    assert re.search(
        r"^mpi +(\w+ \d.*, /.*libmpi.*|none \(pip install 'weft-arrays\[mpich\]'\))$",
        info.stdout,
        re.MULTILINE,
    )
    assert "JAX_ENABLE_X64" in info.stdout and "JAX_OTHER" not in info.stdout


def test_info_describes_unknown_cpu_features(monkeypatch):
    monkeypatch.setenv("WEFT_CPU_FEATURES", "sse5")
    text = weft.print_environment_info(return_string=True)
    assert re.search("^matrix unit +unknown. WEFT_CPU_FEATURES: 'sse5' is not", text, re.MULTILINE)


def test_info_hides_the_secret_of_a_job(monkeypatch):
    monkeypatch.setenv("WEFT_JOB_SECRET", "a long enough secret")
    monkeypatch.setenv("WEFT_JOB_SECRET_FILE", "/a/file")
    text = weft.print_environment_info(return_string=True)
    assert "a long enough secret" not in text
    assert (
        re.search("^WEFT_JOB_SECRET +\\(set; not shown\\)$", text, re.MULTILINE)
        and "/a/file" in text
    )


def test_settings_are_listed_with_their_meaning(tmp_path):
    lines = run_weft("info", "--settings", cwd=tmp_path, WEFT_LOG_COMPILES="1").stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("WEFT_LOG_COMPILES")]
    assert line.split(maxsplit=2) == [
        "WEFT_LOG_COMPILES",
        "True",
        "Log tracing, lowering and compilation as warnings, with times.",
    ]
    assert lines == sorted(lines) and not any("MOCK_GPU" in line for line in lines)


def test_no_command_prints_help(tmp_path):
    done = run_weft(cwd=tmp_path)
    assert done.returncode == 0 and "run a program that imports jax" in done.stdout
