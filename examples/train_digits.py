"""Train a digit classifier over all devices. Of eight, four split the batch and two the hidden layers.

    weft run examples/train_digits.py --devices 8                              # of one process
    weft launch -n 2 --devices-per-process 4 examples/train_digits.py          # of two
    weft launch -n 2 examples/train_digits.py                                  # two processes of one device each

This is an ordinary JAX program: the same file runs under `python` where JAX is installed, with
XLA_FLAGS=--xla_force_host_platform_device_count=8. It prints the training loss, the accuracy on held-out images, the sharding of
the weights, and at the end the time and the communication of a step; of several processes the first prints.
"""

import argparse
import re
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

PIXELS, HIDDEN, CLASSES = 64, 512, 10
BATCH, HELD_OUT = 128, 360
LEARNING_RATE, DECAY_1, DECAY_2 = 1e-3, 0.9, 0.999

# Two pairs of layers. In a pair the first weight is split by columns and the second by rows, so that the hidden
# values between them stay on their device and the pair ends with one sum over 'model'.
LAYERS = {
    "w1": ((PIXELS, HIDDEN), P(None, "model")),
    "b1": ((HIDDEN,), P("model")),
    "w2": ((HIDDEN, HIDDEN), P("model", None)),
    "b2": ((HIDDEN,), P()),
    "w3": ((HIDDEN, HIDDEN), P(None, "model")),
    "b3": ((HIDDEN,), P("model")),
    "w4": ((HIDDEN, CLASSES), P("model", None)),
    "b4": ((CLASSES,), P()),
}


def load_digits():
    """Pixels in [0, 1] and labels, shuffled; (train, held out)."""
    with np.load(Path(__file__).parent / "data" / "digits.npz") as file:
        pixels = file["images"].reshape(-1, PIXELS).astype(np.float32) / 16
        labels = file["labels"].astype(np.int32)
    order = np.random.default_rng(0).permutation(len(labels))
    train, held_out = order[HELD_OUT:], order[:HELD_OUT]
    return (pixels[train], labels[train]), (pixels[held_out], labels[held_out])


def init_params(key):
    """Normal weights scaled for ReLU, zero biases."""
    params = {}
    for name, (shape, _) in LAYERS.items():
        key, subkey = jax.random.split(key)
        scale = np.sqrt(2 / shape[0]) if name.startswith("w") else 0.0
        params[name] = scale * jax.random.normal(subkey, shape)
    return params


def predict(params, pixels):
    """Scores of the ten digits for each image."""
    hidden = jax.nn.relu(pixels @ params["w1"] + params["b1"])
    hidden = jax.nn.relu(hidden @ params["w2"] + params["b2"])
    hidden = jax.nn.relu(hidden @ params["w3"] + params["b3"])
    return hidden @ params["w4"] + params["b4"]


def loss(params, pixels, labels):
    """Mean cross entropy."""
    log_probabilities = jax.nn.log_softmax(predict(params, pixels))
    return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, CLASSES) * log_probabilities, axis=1))


def train_step(params, means, squares, step, pixels, labels):
    """One step of Adam; returns the new state and the loss before the step."""
    value, grads = jax.value_and_grad(loss)(params, pixels, labels)
    means = jax.tree.map(lambda m, g: DECAY_1 * m + (1 - DECAY_1) * g, means, grads)
    squares = jax.tree.map(lambda s, g: DECAY_2 * s + (1 - DECAY_2) * g * g, squares, grads)
    rate = LEARNING_RATE * jnp.sqrt(1 - DECAY_2**step) / (1 - DECAY_1**step)
    params = jax.tree.map(
        lambda p, m, s: p - rate * m / (jnp.sqrt(s) + 1e-8), params, means, squares
    )
    return params, means, squares, step + 1, value


def fresh_state(place_params, place_rest):
    """Parameters, both moments, and the step count, placed on their devices."""
    params = jax.device_put(init_params(jax.random.PRNGKey(0)), place_params)
    means = jax.device_put(jax.tree.map(jnp.zeros_like, params), place_params)
    squares = jax.device_put(jax.tree.map(jnp.zeros_like, params), place_params)
    return params, means, squares, jax.device_put(jnp.float32(1), place_rest)


def batches(pixels, labels, epochs):
    """Shuffled batches of equal size, epoch after epoch."""
    shuffle = np.random.default_rng(1)
    for epoch in range(epochs):
        order = shuffle.permutation(len(labels))
        for start in range(0, len(labels) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield epoch, pixels[chosen], labels[chosen]


def train(step, state, data, place_batch, epochs):
    """Run all batches, printing the mean loss of every fifth epoch; returns the trained state."""
    steps_per_epoch = len(data[1]) // BATCH
    values = []
    with ProgressBar(epochs * steps_per_epoch) as bar:
        for epoch, pixels, labels in batches(*data, epochs):
            pixels, labels = jax.device_put((pixels, labels), place_batch)
            *state, value = step(*state, pixels, labels)
            values.append(float(value))
            bar.advance(f"epoch {epoch + 1:3}/{epochs}")
            if len(values) == steps_per_epoch:
                if epoch == 0 or (epoch + 1) % 5 == 0:
                    bar.say(f"epoch {epoch + 1:3}   loss {np.mean(values):.4f}")
                values = []
    return state


class ProgressBar:
    """A progress bar in a terminal (rich's if it is installed); without a terminal, only lines of text; nothing but in process 0."""

    def __init__(self, total):
        self.total, self.done, self.rich = total, 0, None
        self.in_terminal = sys.stdout.isatty() and jax.process_index() == 0

    def __enter__(self):
        try:
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )
        except ImportError:
            return self
        if self.in_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self.rich = Progress(*columns, transient=True)
            self.rich.start()
            self.task = self.rich.add_task("training", total=self.total)
        return self

    def advance(self, text):
        self.done += 1
        if self.rich is not None:
            self.rich.update(self.task, advance=1, description=text)
        elif self.in_terminal:
            filled = 30 * self.done // self.total
            print(
                f"\r{text}  [{'#' * filled}{'.' * (30 - filled)}] {self.done}/{self.total} ",
                end="",
                flush=True,
            )

    def say(self, line):
        if self.rich is not None:
            self.rich.console.print(line, highlight=False)
        else:
            say(f"\r{line:60}".rstrip() if self.in_terminal else line)

    def __exit__(self, *error):
        if self.rich is not None:
            self.rich.stop()


def say(line):
    """Print a line; of several processes the first does."""
    if jax.process_index() == 0:
        print(line, flush=True)


def time_step(step, state, batch, repeats=30):
    """Median seconds of one step; the state is donated."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        *state, value = step(*state, *batch)
        value.block_until_ready()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def compile_step(step, *arguments):
    """The compiled step, and the seconds that tracing and compiling took."""
    start = time.perf_counter()
    compiled = step.lower(*arguments).compile()
    return compiled, time.perf_counter() - start


def show_sharding(name, array):
    if jax.process_index() != 0:
        return
    print(f"{name} {array.dtype}[{','.join(map(str, array.shape))}], {array.sharding.spec}")
    try:
        jax.debug.visualize_array_sharding(array, max_width=60, scale=0.6)
    except ValueError as error:  # JAX without rich
        print(error)


def print_collectives(compiled):
    """Every collective of the compiled step: kind, bytes per device, mesh axes and source line."""
    if type(compiled).__module__.startswith("weft"):
        from weft.tools.report import collectives

        rows = [
            (c.kind, c.bytes, f"over {', '.join(c.axes)}", c.source) for c in collectives(compiled)
        ]
    else:
        rows = list(collectives_of_hlo(compiled.as_text()))
    for kind, size, where, source in rows:
        line = f"  {kind:14} {size:>9,} B  {where:10}  {source}"
        say(line if len(line) <= 140 else line[:139] + "…")
    say(
        f"  {len(rows)} collectives, {sum(row[1] for row in rows):,} B sent by each device per step"
    )


def collectives_of_hlo(text):
    """The same from XLA's text, which names the operation instead of mesh axes and source line."""
    pattern = re.compile(
        r"= (\(.*?\)|\S+) (all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)\(.*"
    )
    sizes = {"f32": 4, "s32": 4, "u32": 4, "pred": 1, "bf16": 2, "f64": 8, "s64": 8}
    for match in pattern.finditer(text):
        size = 0
        for dtype, shape in re.findall(r"(\w+)\[([\d,]*)\]", match[1]):
            size += sizes.get(dtype, 4) * int(np.prod([int(n) for n in shape.split(",") if n]))
        name = re.search(r'op_name="([^"]*)"', match[0])
        yield match[2], size, "", name[1] if name else ""


def main():
    parser = argparse.ArgumentParser(description="Train a digit classifier over all devices.")
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs
    count = jax.device_count()
    split_model = 2 if count % 2 == 0 and count > 2 else 1
    split_data = count // split_model
    if BATCH % split_data or HELD_OUT % split_data:
        sys.exit(
            f"This program splits batches of {BATCH} and {HELD_OUT} images evenly over devices, eight at best; there are {count}."
        )

    mesh = Mesh(np.array(jax.devices()).reshape(split_data, split_model), ("data", "model"))
    place_params = {name: NamedSharding(mesh, spec) for name, (_, spec) in LAYERS.items()}
    whole, place_batch = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    step = jax.jit(
        train_step,
        donate_argnums=(0, 1, 2),
        out_shardings=(place_params, place_params, place_params, whole, whole),
    )

    data, held_out = load_digits()
    processes = f", {jax.process_count()} processes" if jax.process_count() > 1 else ""
    say(
        f"{len(data[1])} images to train on, {len(held_out[1])} held out; mesh {split_data} x {split_model} of "
        f"{jax.devices()[0].platform}{processes}"
    )
    state = fresh_state(place_params, whole)
    first_batch = data[0][:BATCH], data[1][:BATCH]
    batch = jax.device_put(first_batch, place_batch)
    compiled, compile_seconds = compile_step(step, *state, *batch)

    state = train(step, state, data, place_batch, epochs)
    scores = jax.jit(predict)(state[0], jax.device_put(held_out[0], place_batch))
    accuracy = float(
        np.mean(np.argmax(process_allgather(scores, tiled=True), axis=1) == held_out[1])
    )
    say(f"held-out accuracy {accuracy:.1%}\n")

    for name in ("w1", "w2"):
        show_sharding(name, state[0][name])

    together = time_step(step, state, batch)
    single = jax.local_devices()[0]
    step_single = jax.jit(train_step, donate_argnums=(0, 1, 2))
    one = time_step(step_single, fresh_state(single, single), jax.device_put(first_batch, single))
    say(f"\ntime per step   {one * 1e3:.2f} ms on one device, {together * 1e3:.2f} ms on {count}")
    say(f"compile time    {compile_seconds:.2f} s")
    say("collectives of a step:")
    print_collectives(compiled)
    if epochs >= 10 and accuracy < 0.97:
        sys.exit(f"accuracy {accuracy:.1%} is below 97 %")


if __name__ == "__main__":
    main()
