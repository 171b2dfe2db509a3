"""Run a Python program as `__main__` on weft, as `python PROGRAM` would.

In:  a file or a module name, its arguments, and the number of devices.
Out: its exit status. An error prints a traceback that begins at the program's own first line.
"""

import atexit
import contextlib
import ctypes
import importlib.util
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType, TracebackType

from weft._engine.processes import launchers
from weft._engine.processes.current_processes import held
from weft._engine.util.errors import ProcessFailureError
from weft.compat import install_as_jax, installed_shim
from weft.tools.output import CLOSED_OUTPUT, drop_output, is_output_closed

#: prints an error that ends a program, with the traceback from the program's own first line on;
#: returns the exit status
ShowError = Callable[[BaseException, TracebackType | None], int]


def run_program(
    program: str,
    arguments: Sequence[str],
    *,
    as_module: bool = False,
    devices: int | None = None,
    show_error: ShowError | None = None,
) -> int:
    """Run `program` with `arguments` and return its exit status."""
    _meet_launcher()
    if devices is not None:
        os.environ["WEFT_NUM_DEVICES"] = str(devices)  # read on first use of a device
    if not installed_shim():  # with a shim, `import jax` does it, with the shim's version
        install_as_jax()
    sys.path.insert(0, os.getcwd() if as_module else os.path.dirname(os.path.abspath(program)))
    try:
        path, package, code = _load_module(program) if as_module else _load_file(program)
    except SyntaxError as error:
        show(error, None)
        return 1
    except OSError as error:
        print(f"weft: cannot read {program!r}: {error.strerror or error}", file=sys.stderr)
        return 2
    try:
        meet_others()
    except ProcessFailureError as error:
        return show(error, None)
    sys.argv[:] = [path, *arguments]
    main = ModuleType("__main__")
    main.__file__ = path
    main.__package__ = package
    sys.modules["__main__"] = main
    return _execute(code, main, show_error or show)


def _meet_launcher() -> None:
    """Under `weft launch`, end with the launcher, flush whole lines, and use the launcher's file
    for the final error."""
    launcher = os.environ.get("WEFT_LAUNCHER_PID")
    if not launcher:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != int(launcher):
            raise SystemExit("weft run: the launcher has ended")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a pipe replaces the terminal
    descriptor = os.environ.pop("WEFT_ERROR_FD", None)  # child programs do not take part
    if descriptor is not None:
        os.set_inheritable(int(descriptor), False)
        _error_files.append(int(descriptor))


#: the file descriptor from which `weft launch`, if it started this process, reads the process's
#: last error
_error_files: list[int] = []


def meet_others() -> None:
    """Join the other processes of the launcher, if any."""
    if launchers.detected_size() > 1:
        from weft import distributed

        distributed.initialize()
        held[0].is_launched = True
        if _error_files:
            atexit.register(_leave_others)  # runs before the function that `initialize` registered


def _leave_others() -> None:
    """Wait for the other processes at the end of the program. If one fails, leave the error to the launcher."""
    if not held or held[0].client.is_failure_seen:
        return  # the error that ends this process has been reported
    from weft import distributed

    try:
        distributed.shutdown()
    except ProcessFailureError as error:
        _tell_launcher(f"{type(error).__module__}.{type(error).__name__}: {error}\n", follows=True)
        sys.stdout.flush()
        os._exit(1)


_SET_DEATH_SIGNAL = 1


def _execute(code: CodeType, main: ModuleType, show_error: ShowError) -> int:
    try:
        exec(code, main.__dict__)
    except SystemExit:
        raise  # Python converts its code into a status and a message
    except BrokenPipeError as error:
        if is_output_closed():
            drop_output()
            return CLOSED_OUTPUT
        return show_error(error, _below_here(error.__traceback__))
    except KeyboardInterrupt as error:
        show(error, _below_here(error.__traceback__))
        return 130
    except BaseException as error:
        return show_error(error, _below_here(error.__traceback__))
    return 0


def _load_file(program: str) -> tuple[str, str | None, CodeType]:
    with open(program, "rb") as file:
        return program, None, compile(file.read(), program, "exec", dont_inherit=True)


def _load_module(program: str) -> tuple[str, str | None, CodeType]:
    try:
        spec = importlib.util.find_spec(program)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{program}.__main__")
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise FileNotFoundError(2, "no module of that name that can be run", program)
    path, _, code = _load_file(spec.origin)
    return path, spec.parent, code


def _below_here(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of this file at its top."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def show(error: BaseException, traceback: TracebackType | None) -> int:
    """Print an error and its traceback; return the exit status."""
    error.__traceback__ = traceback
    if not _error_files:
        sys.excepthook(type(error), error, traceback)
        return 1
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        sys.excepthook(type(error), error, traceback)
    has_failure_report = bool(held) and held[0].client.failure is not None
    _tell_launcher(
        shown.getvalue(), follows=has_failure_report and isinstance(error, ProcessFailureError)
    )
    return 1


def _tell_launcher(text: str, follows: bool) -> None:
    """Send an error to the launcher, which prints equal errors once; `follows` means that another
    process failed before."""
    try:
        os.write(_error_files[0], json.dumps({"text": text, "follows": follows}).encode())
    except OSError:
        sys.stderr.write(text)
