"""One line on standard error while the program waits for weft: compiling, saving, restoring, launching.

In:  a context manager around the work, with its title and, if it is known, the finished fraction.
Out: after 2 seconds, a line with the title and the elapsed time; it disappears when the work ends.
Invariants: work of other threads than the main thread shows nothing, because the program does not wait for it. Without a
terminal nothing is shown and no thread is started; the setting `progress` changes that. Shorter work costs a few microseconds.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from weft._engine.util.config import config

DELAY_S = 2.0
_REFRESH_S = 0.2


class _Activity:
    """Work in progress."""

    def __init__(self, title: str, fraction: Callable[[], float] | None) -> None:
        self.title, self.fraction = title, fraction
        self.start = time.monotonic()


class _Watcher:
    """A thread that shows the oldest activity when it has lasted for `DELAY_S`; it starts with the first activity."""

    def __init__(self) -> None:
        self._activities: list[_Activity] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self, activity: _Activity) -> None:
        with self._changed:
            self._activities.append(activity)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="weft progress", daemon=True)
                self._thread.start()
            elif len(self._activities) == 1:
                self._changed.notify()

    def end(self, activity: _Activity) -> None:
        with self._changed:
            if activity in self._activities:  # not after an interrupt before `begin`
                self._activities.remove(activity)
            is_shown = time.monotonic() - activity.start >= DELAY_S
            if is_shown and not self._activities:
                self._changed.notify()
                self._changed.wait(_REFRESH_S)  # until the line has disappeared

    def _run(self) -> None:
        with self._changed:
            while True:
                if not self._activities:
                    self._changed.wait()
                    continue
                left = self._activities[0].start + DELAY_S - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                self._show(self._activities[0])

    def _show(self, activity: _Activity) -> None:
        """Show an activity until it ends. The lock is held except while waiting."""
        line = _start_line(activity)
        while activity in self._activities:
            line.update(_percent(activity))
            self._changed.wait(_REFRESH_S)
        line.stop()
        self._changed.notify_all()


class _Line:
    """A line of rich on standard error."""

    def __init__(self, activity: _Activity) -> None:
        from rich import progress
        from rich.console import Console

        columns: list[Any] = [
            progress.SpinnerColumn(),
            progress.TextColumn("weft: {task.description}"),
        ]
        if activity.fraction is not None:
            columns += [progress.BarColumn(), progress.TaskProgressColumn()]
        self._progress = progress.Progress(
            *columns,
            progress.TimeElapsedColumn(),
            console=Console(stderr=True, force_terminal=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        total = None if activity.fraction is None else 1.0
        self._task = self._progress.add_task(activity.title, total=total)
        task = self._progress.tasks[0]
        task.start_time = self._progress.get_time() - (time.monotonic() - activity.start)
        self._progress.start()

    def update(self, fraction: float | None) -> None:
        self._progress.update(self._task, completed=fraction, refresh=True)

    def stop(self) -> None:
        self._progress.stop()


class _NoLine:
    """A line that cannot be shown."""

    def update(self, fraction: float | None) -> None:
        pass

    def stop(self) -> None:
        pass


def _start_line(activity: _Activity) -> _Line | _NoLine:
    try:
        return _Line(activity)
    except Exception:  # standard error is closed, or rich is damaged; the work continues
        return _NoLine()


def _percent(activity: _Activity) -> float | None:
    return None if activity.fraction is None else activity.fraction()


_watcher = _Watcher()


def _forget_watcher() -> None:
    """Start anew in a forked child, which does not have the thread."""
    global _watcher
    _watcher = _Watcher()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_watcher)


def is_shown() -> bool:
    """Return whether work of this thread is shown: by the setting `progress`, else if standard error is a terminal."""
    if threading.get_ident() != threading.main_thread().ident:
        return False
    if config.progress is not None:
        return config.progress
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it is closed
        return False


@contextlib.contextmanager
def show_progress(title: str, fraction: Callable[[], float] | None = None) -> Iterator[None]:
    """Show `title` on standard error if the body takes more than 2 seconds; `fraction` returns the finished part.

    >>> with show_progress("compiling f"):
    ...     pass
    """
    if not is_shown():
        yield
        return
    activity, watcher = _Activity(title, fraction), _watcher
    try:
        watcher.begin(activity)
        yield
    finally:
        watcher.end(activity)
