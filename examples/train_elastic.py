"""Train a digit classifier that survives preemption, restarts and lost processes.

    python examples/train_elastic.py --folder /tmp/digits                                 # one process
    weft launch -n 4 --restarts 5 examples/train_elastic.py --folder /tmp/digits          # four; after a failure all start again
    weft launch -n 4 examples/train_elastic.py --folder /tmp/digits --shrink              # after a failure the others continue

The program starts from the newest checkpoint in the folder. SIGTERM, which Slurm and Kubernetes send before they stop a job, makes all
processes save at the same step and end with exit status 75. The same command continues then: on the same number of processes the parameters
at the end have the same bits as in an undisturbed run.
"""

import argparse
import contextlib
import hashlib
import sys
from pathlib import Path

import numpy as np

import weft
import weft.distributed
import weft.numpy as wnp
from weft import checkpoint
from weft.errors import CheckpointError, ProcessFailureError
from weft.experimental.multihost_utils import process_allgather, reached_preemption_sync_point
from weft.sharding import NamedSharding, PartitionSpec as P

PIXELS, HIDDEN, CLASSES = 64, 128, 10
BATCH = 120  # 1 to 6 and 8 devices share it evenly
LEARNING_RATE, MOMENTUM = 0.05, 0.9


def load_digits():
    """Return pixels in [0, 1] and labels."""
    with np.load(Path(__file__).parent / "data" / "digits.npz") as file:
        return file["images"].reshape(-1, PIXELS).astype(np.float32) / 16, file["labels"].astype(
            np.int32
        )


def batch(data, step, rows):
    """Return the batch of a step. The step alone decides which images it has, so that a program can continue anywhere."""
    pixels, labels = data
    chosen = np.random.default_rng(step).integers(len(labels), size=BATCH)
    return tuple(
        weft.make_array_from_callback(x.shape, rows, lambda index, x=x: x[index])
        for x in (pixels[chosen], labels[chosen])
    )


def initial_state():
    """Return parameters and their momentum."""
    keys = weft.random.split(weft.random.key(0), 2)
    params = {
        "w1": weft.random.normal(keys[0], (PIXELS, HIDDEN)) * (2 / PIXELS) ** 0.5,
        "b1": wnp.zeros(HIDDEN),
        "w2": weft.random.normal(keys[1], (HIDDEN, CLASSES)) * (2 / HIDDEN) ** 0.5,
        "b2": wnp.zeros(CLASSES),
    }
    return {"params": params, "momentum": weft.tree.map(wnp.zeros_like, params)}


def loss(params, pixels, labels):
    """Return the mean cross entropy."""
    hidden = weft.nn.relu(pixels @ params["w1"] + params["b1"])
    scores = weft.nn.log_softmax(hidden @ params["w2"] + params["b2"])
    return -wnp.mean(wnp.sum(weft.nn.one_hot(labels, CLASSES) * scores, axis=1))


@weft.jit
def train_step(state, pixels, labels):
    """Return the state after one step, and the loss before it. Nothing is donated: the state before is needed after a failure."""
    value, grads = weft.value_and_grad(loss)(state["params"], pixels, labels)
    momentum = weft.tree.map(lambda m, g: MOMENTUM * m + g, state["momentum"], grads)
    params = weft.tree.map(lambda p, m: p - LEARNING_RATE * m, state["params"], momentum)
    return {"params": params, "momentum": momentum}, value


def layouts():
    """Return the shardings of the state, which every device has whole, and of a batch, over all devices there are now."""
    mesh = weft.make_mesh((weft.device_count(),), ("data",))
    return NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))


def continue_without_lost_processes(states):
    """Return the newest step that all survivors have finished, and its state on their devices."""
    with contextlib.suppress(ProcessFailureError, CheckpointError):
        checkpoint.wait()  # a save that was under way failed, too
    weft.distributed.shrink()
    everywhere, _ = layouts()
    step = int(process_allgather(np.int32(max(states))).min())
    return step, weft.device_put(states[step], everywhere)


def train(folder, steps, save_every, shrink):
    """Train to the end, or until SIGTERM; returns the state."""
    data = load_digits()
    everywhere, rows = layouts()
    state, step = weft.device_put(initial_state(), everywhere), 0
    if checkpoint.latest_step(folder) is not None:
        saved = checkpoint.restore(folder, like={"state": state, "step": 0})
        state, step = saved["state"], saved["step"]
        say(f"continues at step {step}")
    states = {
        step: state
    }  # of the last two steps: when a process fails, some of the others may have finished a step more
    while step < steps:
        try:
            if reached_preemption_sync_point(step):
                checkpoint.save(
                    folder, {"state": states[step], "step": step}, step, keep=3, overwrite=True
                ).wait()
                say(f"preempted at step {step}; the same command continues")
                sys.exit(weft.distributed.PREEMPTED)
            states[step + 1], value = weft.block_until_ready(
                train_step(states[step], *batch(data, step, rows))
            )
            states.pop(step - 1, None)
            step += 1
            if step % save_every == 0:
                checkpoint.save(
                    folder, {"state": states[step], "step": step}, step, keep=3, overwrite=True
                )
            if step % 10 == 0:
                say(f"step {step}  loss {float(value):.4f}")
        except ProcessFailureError as error:
            if not shrink:
                raise  # `weft launch --restarts` starts the program again
            step, state = continue_without_lost_processes(states)
            states, (everywhere, rows) = {step: state}, layouts()
            say(
                f"{str(error).splitlines()[0]} {weft.process_count()} processes continue at step {step}"
            )
    checkpoint.wait()
    return states[step]


def fingerprint(params):
    """Return a text that is equal for equal bits."""
    leaves = [np.asarray(leaf.addressable_data(0)) for leaf in weft.tree.leaves(params)]
    return hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()[:16]


def say(line):
    """Print a line; of several processes the first does."""
    if weft.process_index() == 0:
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(
        description="Train through preemption, restarts and lost processes."
    )
    parser.add_argument(
        "--folder", required=True, help="of the checkpoints, on a file system that all hosts share"
    )
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument(
        "--shrink", action="store_true", help="continue in place without processes that were lost"
    )
    options = parser.parse_args()
    state = train(options.folder, options.steps, options.save_every, options.shrink)
    say(f"parameters {fingerprint(state['params'])}")


if __name__ == "__main__":
    main()
