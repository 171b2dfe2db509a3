"""The line of progress on standard error."""

import os
import pty
import select
import subprocess
import sys
import threading

import pytest

import weft
from tests.harness.processes import run_python
from weft._engine.util.messages import progress
from weft._engine.util.messages.progress import show_progress

#: shows a line at once instead of after 2 seconds
SLOW = """
import sys, threading, time
from weft._engine.util.messages import progress
progress.DELAY_S = 0.05
shown = threading.Event()
class Line(progress._Line):
    def update(self, fraction):
        super().update(fraction)
        shown.set()
progress._Line = Line
with progress.show_progress("compiling step"):
    shown.wait({wait})
print("rich" in sys.modules, [t.name for t in threading.enumerate()])
"""


def test_nothing_is_shown_without_a_terminal():
    done = run_python("-c", SLOW.format(wait=0.2))
    assert done.stderr == ""
    assert done.stdout == "False ['MainThread']\n"


def test_short_work_loads_nothing():
    done = run_python("-c", SLOW.format(wait=0).replace("0.05", "60"), WEFT_PROGRESS="1")
    assert done.stderr == ""
    assert done.stdout.startswith("False")


def test_the_setting_shows_the_line():
    done = run_python("-c", SLOW.format(wait=60), WEFT_PROGRESS="1")
    assert "weft: compiling step" in done.stderr
    assert done.stdout.startswith("True")


@pytest.mark.parametrize("setting, is_shown", [("", True), ("0", False)])
def test_a_terminal_shows_the_line(setting, is_shown):
    main, side = pty.openpty()
    env = {**os.environ, **({"WEFT_PROGRESS": setting} if setting else {})}
    text = SLOW.format(wait=60 if is_shown else 0.2)
    child = subprocess.Popen(
        [sys.executable, "-c", text], stderr=side, stdout=subprocess.PIPE, env=env
    )
    os.close(side)
    shown = b""
    while select.select([main], [], [], 120)[0]:
        try:
            data = os.read(main, 4096)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        shown += data
    os.close(main)
    assert child.communicate()[0].startswith(b"True" if is_shown else b"False")
    assert (b"weft: compiling step" in shown) == is_shown


def test_only_the_main_thread_shows_progress():
    weft.config.update("progress", True)
    try:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(progress.is_shown()))
        thread.start()
        thread.join()
        assert (progress.is_shown(), answers) == (True, [False])
    finally:
        weft.config.update("progress", None)


@pytest.mark.parametrize(
    "module, title",
    [
        ("weft._engine.programs", "compiling jit(f)"),
        ("weft.checkpoint.saving", "saving step 7"),
        ("weft.checkpoint.restoring", "restoring "),
    ],
    ids=["compile", "save", "restore"],
)
def test_waits_have_titles(monkeypatch, tmp_path, module, title):
    titles = []
    monkeypatch.setenv("WEFT_CACHE_DIR", "off")

    def record(title, fraction=None):
        titles.append((title, None if fraction is None else fraction()))
        return show_progress(title, fraction)

    monkeypatch.setattr(f"{module}.show_progress", record)

    def f(x):
        return x * 3 + len(titles)

    weft.jit(f)(weft.numpy.ones(7))
    weft.checkpoint.save(tmp_path, {"w": weft.numpy.ones(7)}, 7).wait()
    weft.checkpoint.restore(tmp_path)
    assert any(one.startswith(title) for one, _ in titles)
    assert all(part is None or 0 <= part <= 1 for _, part in titles)
