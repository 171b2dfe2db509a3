"""Programs that are killed while they save, for tests/checkpoint/test_faults.py.

crashes.py events FOLDER EVERY  one process per EVERY file operations of a save, killed there; prints what was left
crashes.py overtakes FOLDER EVERY  another program saves, once per EVERY file operations of two saves; prints what was left
crashes.py limits FOLDER        a process for each of some limits of the size of files; prints what was left
crashes.py train FOLDER KEEP    resumes and saves for ever; prints each step that is whole
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np

from weft import checkpoint
from weft.checkpoint import restoring, saving, store

# all is imported before processes are forked
assert checkpoint.restore and restoring and saving and store.tensorstore()

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}


def value(step, size=1 << 15):
    return {
        "w": np.full(size, step, np.int32),
        "small": [np.full(3, step), step],
        "name": f"step {step}",
    }


def agrees(restored, step) -> bool:
    array, number = restored["small"]
    return (
        (restored["w"] == step).all()
        and (array == step).all()
        and number == step
        and restored["name"] == f"step {step}"
    )


def state(folder) -> dict:
    """Return the existing steps, and whether each is complete."""
    there = checkpoint.steps(folder)
    whole = [agrees(checkpoint.restore(folder, step=step), step) for step in there]
    return {"steps": there, "whole": whole}


def seen(folder) -> dict:
    """Return the `state` as read by a separate process."""
    read, write = os.pipe()
    assert forked(lambda: os.write(write, json.dumps(state(folder)).encode())) == 0
    report = json.loads(os.read(read, 1 << 16))
    os.close(read)
    os.close(write)
    return report


def forked(work) -> int:
    """Return the exit status of a process that runs `work`; a signal as a negative number. The
    parent runs no threads."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(type(error).__name__, str(error).replace("\n", " | "), file=sys.stderr)
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def killed_at(number: int, folder: str) -> None:
    """Kill this process at its file operation of that number in the folder."""
    seen = [0]

    def hook(event, args):
        if event in EVENTS and str(args[0]).startswith(folder):
            seen[0] += 1
            if seen[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def events(folder: str, every: str) -> None:
    results = []
    assert forked(lambda: checkpoint.save(folder, value(1), 1).wait()) == 0
    number = step = 2
    while True:

        def work(number=number - 1, step=step):
            killed_at(number, folder)
            checkpoint.save(folder, value(step), step, keep=2, overwrite=True).wait()

        status = forked(work)
        results.append({"status": status, "step": step, **seen(folder)})
        if status == 0:
            break
        number += int(every)
        step += (
            step in results[-1]["steps"]
        )  # a step that got its name is replaced every other time
    print(json.dumps(results))


def paused_at(number: int, folder: str, tell: int, go: int) -> None:
    """Report when this process reaches its file operation of that number in the folder, and wait
    for permission to continue."""
    seen = [0]

    def hook(event, args):
        if event in EVENTS and str(args[0]).startswith(folder):
            seen[0] += 1
            if seen[0] == number:
                os.write(tell, b"1")
                os.read(go, 1)

    sys.addaudithook(hook)


def overtakes(folder: str, every: str) -> None:
    """For regularly chosen operations of a program that replaces step 5 and saves step 7: another one does the same with other values there.

    The remaining steps are 1, 5 (first saved as 5, then as 50, by the other program as 500), 6 of the other program, and 7."""
    results = []
    number = 1
    while True:
        place = f"{folder}/{number}"
        assert (
            forked(
                lambda place=place: [
                    checkpoint.save(place, value(step), step).wait() for step in (1, 5)
                ]
            )
            == 0
        )

        def old(place=place):
            checkpoint.save(place, value(50), 5, overwrite=True).wait()
            checkpoint.save(place, value(7), 7, keep=1).wait()

        def new(place=place):
            checkpoint.save(place, value(500), 5, overwrite=True).wait()
            checkpoint.save(place, value(6), 6).wait()

        results.append(overtaken(place, old, new, number))
        if not results[-1]["paused"]:
            break
        number += int(every)
    print(json.dumps(results))


def overtaken(place: str, old, new, number: int) -> dict:
    """Pause `old` at its file operation `number` while `new` runs; return the values of the steps and the error of `old`."""
    reader, tell = os.pipe()
    go, let_go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        error = ""
        try:
            paused_at(number, place, tell, go)
            old()
        except BaseException as failure:
            error = f"{type(failure).__name__}: {failure}"
        Path(f"{place}.error").write_text(error)
        os._exit(0)
    os.close(tell)
    is_paused = bool(os.read(reader, 1))
    before = checkpoint.steps(place)
    assert not is_paused or forked(new) == 0
    os.write(let_go, b"1")
    assert os.waitpid(child, 0)[1] == 0
    for handle in (reader, go, let_go):
        os.close(handle)
    values = {step: saved_as(place, step) for step in checkpoint.steps(place)}
    return {
        "paused": is_paused,
        "before": before,
        "values": values,
        "error": Path(f"{place}.error").read_text(),
    }


def saved_as(folder: str, step: int) -> int:
    """Return the number with which a step was saved, read by a separate process; -1 if its leaves disagree."""
    read, write = os.pipe()

    def work():
        restored = checkpoint.restore(folder, step=step)
        number = int(restored["w"][0])
        os.write(write, str(number if agrees(restored, number) else -1).encode())

    assert forked(work) == 0
    number = int(os.read(read, 100))
    os.close(read)
    os.close(write)
    return number


def limits(folder: str) -> None:
    results = []
    assert forked(lambda: checkpoint.save(folder, value(1), 1).wait()) == 0
    for limit in (0, 100, 5_000, 100_000):

        def work(limit=limit):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            checkpoint.save(folder, value(2), 2).wait()

        status = forked(work)
        results.append({"status": status, "left": sorted(os.listdir(folder)), **seen(folder)})
    print(json.dumps(results))


def train(folder: str, keep: str) -> None:
    step = checkpoint.latest_step(folder) or 0
    if step:
        restored = checkpoint.restore(folder)
        assert agrees(restored, step), f"step {step} is not what was saved"
    size = store.BLOCK_BYTES // 4 + 1000  # some blocks
    while True:
        step += 1
        saving = checkpoint.save(folder, value(step, size), step, keep=int(keep))
        time.sleep(0.01)
        saving.wait()
        print(step, flush=True)


if __name__ == "__main__":
    {"events": events, "limits": limits, "overtakes": overtakes, "train": train}[sys.argv[1]](
        *sys.argv[2:]
    )
