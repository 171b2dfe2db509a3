"""Random programs for one device of a 4 by 2 mesh, as data, and three ways to run them.

`make(seed)` gives a list of steps (operation, operands, detail); every value is a 4 by 4 block. `on_devices` runs it on NumPy,
one block per device: the meaning. `body(steps, xp, lax)` is the same program as a function of one device's blocks, for any
system that has NumPy's and lax's names. As a script, it runs programs on the peer: `python device_programs.py SEEDS OUT`.
"""

import json
import sys

import numpy as np

SIZES = {"i": 4, "j": 2}
AXES = [("i",), ("j",), ("i", "j")]
INPUTS = 3  # x cut over both axes, y over i, and w whole
UNARY = ("sin", "tanh", "neg", "transpose", "place")
BINARY = ("add", "mul", "sub", "dot")
COLLECTIVE = (
    "psum",
    "pmean",
    "ppermute",
    "all_gather",
    "all_to_all",
    "psum_scatter",
    "scan",
    "cond",
)


def make(seed, length=8):
    """Return the steps of one program; each reads values made before it, most often late ones."""
    rng = np.random.default_rng(seed)
    steps = []
    for k in range(length):
        n = INPUTS + k
        pick = lambda n=n: int(max(rng.integers(n), rng.integers(n)))
        kind = rng.choice(["unary", "binary", "collective"], p=[0.25, 0.25, 0.5])
        if kind == "binary":
            steps.append((str(rng.choice(BINARY)), (pick(), pick()), None))
        else:
            name = str(rng.choice(UNARY if kind == "unary" else COLLECTIVE))
            axes = AXES[rng.integers(2 if name in ("ppermute", "all_to_all", "place") else 3)]
            steps.append((name, (pick(),), (list(axes), int(rng.integers(1, 4)))))
    return steps


def inputs(seed):
    """Return whole arrays: x [16, 8], y [16, 4], w [4, 4]."""
    rng = np.random.default_rng(seed + 1000)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((16, 8), (16, 4), (4, 4))]


def weights(seed):
    """Return the weights that reduce the results to one number."""
    rng = np.random.default_rng(seed + 2000)
    return rng.standard_normal((32, 4)).astype(np.float32), rng.standard_normal((4, 4)).astype(
        np.float32
    )


# --- the meaning ------------------------------------------------------------------------------------------------------


def on_devices(steps, x, y, w):
    """Return the NumPy results: the last value of all devices, stacked along rows, and its mean over devices."""
    blocks = [
        x.reshape(4, 4, 2, 4).transpose(0, 2, 1, 3),
        np.repeat(y.reshape(4, 1, 4, 4), 2, 1),
        np.broadcast_to(w, (4, 2, 4, 4)),
    ]
    for name, operands, detail in steps:
        blocks.append(_step(name, [blocks[i] for i in operands], detail))
    return blocks[-1].reshape(32, 4), blocks[-1].mean((0, 1))


def _step(name, args, detail):
    a = args[0]
    if name in BINARY:
        b = args[1]
        return {"add": a + b, "mul": a * b, "sub": a - b, "dot": 0.3 * a @ b}[name]
    if name in ("sin", "tanh"):
        return getattr(np, name)(a)
    if name == "neg":
        return -a
    if name == "transpose":
        return a.swapaxes(-1, -2)
    axes, shift = detail
    dims = tuple("ij".index(axis) for axis in axes)
    n = int(np.prod([SIZES[axis] for axis in axes]))
    mean = lambda v: np.broadcast_to(v.mean(dims, keepdims=True), v.shape)
    if name == "place":
        index = np.arange(n).reshape([n if d in dims else 1 for d in range(2)] + [1, 1])
        return a * (index * 0.5 + 1)
    if name == "psum":
        return 0.25 * n * mean(a)
    if name == "pmean":
        return mean(a)
    if name == "ppermute":
        return np.roll(a, shift, dims[0])
    if name == "scan":
        for _ in range(2):
            a = np.tanh(a + mean(a))
        return a
    if name == "cond":
        return np.sin(a) if a.sum() > 0 else mean(a) * 2
    flat = a.reshape((8, 4, 4)) if len(dims) == 2 else np.moveaxis(a, dims[0], 0)
    if name == "all_gather":
        gathered = np.broadcast_to(flat[shift % n], (n, *flat.shape[1:]))
    elif name == "all_to_all":  # rows of all senders, side by side
        rows = flat.reshape(n, -1, n, 4 // n, 4)
        gathered = np.stack([np.concatenate(list(rows[:, :, k]), -1) for k in range(n)]).reshape(
            flat.shape
        )
    else:  # psum_scatter: each has its rows of the sum, repeated
        total, width = flat.sum(0), max(4 // n, 1)
        parts = [total[..., (k * width) % 4 : (k * width) % 4 + width, :] for k in range(n)]
        gathered = 0.25 * np.stack([np.concatenate([p] * (4 // width), -2) for p in parts])
    return (
        gathered.reshape(a.shape)
        if len(dims) == 2
        else np.moveaxis(gathered, 0, dims[0]).reshape(a.shape)
    )


# --- the program of one device ----------------------------------------------------------------------------------------


def body(steps, xp, lax):
    """Return the program as a function of the blocks of one device."""

    def run(x, y, w):
        values = [x, y, w]
        for name, operands, detail in steps:
            values.append(_apply(xp, lax, name, [values[i] for i in operands], detail))
        return values[-1], lax.pmean(values[-1], ("i", "j"))

    return run


def _apply(xp, lax, name, args, detail):
    a = args[0]
    if name in BINARY:
        b = args[1]
        return (
            0.3 * a @ b
            if name == "dot"
            else {"add": xp.add, "mul": xp.multiply, "sub": xp.subtract}[name](a, b)
        )
    if name in ("sin", "tanh"):
        return getattr(xp, name)(a)
    if name == "neg":
        return -a
    if name == "transpose":
        return a.T
    axes, shift = detail
    axes = tuple(axes)
    n = int(np.prod([SIZES[axis] for axis in axes]))
    if name == "place":
        return a * (lax.axis_index(axes[0]) * 0.5 + 1)
    if name == "psum":
        return lax.psum(a * 0.25, axes)
    if name == "pmean":
        return lax.pmean(a, axes)
    if name == "ppermute":
        return lax.ppermute(a, axes[0], [(k, (k + shift) % n) for k in range(n)])
    if name == "all_gather":
        return lax.all_gather(a, axes, tiled=True).reshape(n, 4, 4)[shift % n]
    if name == "all_to_all":
        return lax.all_to_all(a, axes[0], 0, 1, tiled=True).reshape(4, 4)
    if name == "psum_scatter":
        if n > 4:
            a = xp.concatenate([a, a])
        part = lax.psum_scatter(a * 0.25, axes, tiled=True)
        return xp.concatenate([part] * (4 // part.shape[0]))
    if name == "scan":
        return lax.scan(lambda c, _: (xp.tanh(c + lax.pmean(c, axes)), None), a, None, length=2)[0]
    if name == "cond":
        flag = lax.psum(a.sum(), ("i", "j")) > 0
        return lax.cond(flag, xp.sin, lambda v: varying(lax, lax.pmean(v, axes), v) * 2, a)
    raise ValueError(name)


def varying(lax, x, like):
    """Return `x` cast to vary over the axes of `like`, so that both branches have one type."""
    return x + 0 * like


def whole(api, xp, lax, mesh, spec, steps, **options):
    """Return the program on whole values, and the gradient of a weighted sum of its results."""
    specs = {
        "in_specs": (spec("i", "j"), spec("i"), spec()),
        "out_specs": (spec(("i", "j")), spec()),
    }
    mapped = api.shard_map(body(steps, xp, lax), mesh=mesh, **specs, **options)
    weigh = lambda a, b, args: (lambda r: xp.sum(r[0] * a) + xp.sum(r[1] * b))(mapped(*args))
    return mapped, lambda a, b, *args: api.grad(lambda *xs: weigh(a, b, xs), (0, 1, 2))(*args)


def on_peer(seeds):
    """Return results and gradients of the peer by seed."""
    import jax

    class Lax:
        """The peer's collectives, which do not cast operands that vary over a part of the axes."""

        scan, cond, axis_index, ppermute = map(
            staticmethod, (jax.lax.scan, jax.lax.cond, jax.lax.axis_index, jax.lax.ppermute)
        )

        def __getattr__(self, name):
            def call(x, axes, *args, **options):
                missing = tuple(
                    a
                    for a in ((axes,) if isinstance(axes, str) else axes)
                    if a not in jax.typeof(x).mat.varying
                )
                if missing and checked[0]:
                    x = jax.lax.pcast(x, missing, to="varying")
                return getattr(jax.lax, name)(x, axes, *args, **options)

            return call

    checked, lax = [True], Lax()
    mesh = jax.make_mesh((4, 2), ("i", "j"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    results = {}
    for seed in seeds:
        for check in (True, False):
            checked[0] = check
            mapped, grads = whole(
                jax, jax.numpy, lax, mesh, jax.sharding.PartitionSpec, make(seed), check_vma=check
            )
            args = [jax.numpy.asarray(v) for v in inputs(seed)]
            values = [*jax.jit(mapped)(*args), *jax.jit(grads)(*weights(seed), *args)]
            results[f"{seed} {check}"] = [np.asarray(v).tolist() for v in values]
    return results


if __name__ == "__main__":
    with open(sys.argv[2], "w") as file:
        json.dump(on_peer(json.loads(sys.argv[1])), file)
