"""Programs that are killed while they save, for tests/checkpoint/test_faults.py.

    crashes.py events FOLDER EVERY  a process for every so many file operations of a save, killed there; prints what was left
    crashes.py limits FOLDER        a process for each of some limits of the size of files; prints what was left
    crashes.py train FOLDER KEEP    resumes and saves for ever; prints each step that is whole
"""

import json
import os
import resource
import signal
import sys
import time

import numpy as np

from weft import checkpoint
from weft.checkpoint import restoring, saving, store

# all is imported before processes are forked
assert checkpoint.restore and restoring and saving and store.tensorstore()

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}


def value(step, size=1 << 15):
    return {"w": np.full(size, step, np.int32), "small": [np.full(3, step), step], "name": f"step {step}"}


def agrees(found, step) -> bool:
    array, number = found["small"]
    return (found["w"] == step).all() and (array == step).all() and number == step and found["name"] == f"step {step}"


def state(folder) -> dict:
    """The steps that are there, and whether each is whole."""
    there = checkpoint.steps(folder)
    whole = [agrees(checkpoint.restore(folder, step=step), step) for step in there]
    return {"steps": there, "whole": whole}


def seen(folder) -> dict:
    """The `state` that a process of its own finds."""
    read, write = os.pipe()
    assert forked(lambda: os.write(write, json.dumps(state(folder)).encode())) == 0
    found = json.loads(os.read(read, 1 << 16))
    os.close(read)
    os.close(write)
    return found


def forked(work) -> int:
    """The exit status of a process that does `work`; a signal as a negative number. The parent runs no threads."""
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
    """Have this process killed at its operation of that number on files in the folder."""
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
        step += step in results[-1]["steps"]               # one that was named goes on being replaced every other time
    print(json.dumps(results))


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
        found = checkpoint.restore(folder)
        assert agrees(found, step), f"step {step} is not what was saved"
    size = store.BLOCK_BYTES // 4 + 1000                    # some blocks
    while True:
        step += 1
        saving = checkpoint.save(folder, value(step, size), step, keep=int(keep))
        time.sleep(0.01)
        saving.wait()
        print(step, flush=True)


if __name__ == "__main__":
    {"events": events, "limits": limits, "train": train}[sys.argv[1]](*sys.argv[2:])
