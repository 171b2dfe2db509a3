"""Random programs on sharded arrays, as text.

In:   a seed.
Out:  a `Program`, the same for the same seed: text that defines `main`, its arguments, a mesh and how the arguments are laid out on it.
      The text uses `api`, `xp`, `lax`, `nn`, `sparse`, `pallas`, `export`, `checkpoint_name` (the system and its modules), `np`, `P`,
      `mesh`, `lay(x, *entries)` (ask for a layout) and `near(x)`, which stands at every rounded result and gives it back.
Laws: no step makes a discontinuous choice by a rounded value, so that two right implementations agree to rounding. A value is *exact*
      if it comes from the arguments without rounding: integers, and floats that are moved, compared, negated or selected.
Next: `steps` and `nested_steps` have what the programs are made of, `runner` runs one, `judge` compares the ways of running it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tests.fuzz.nested_steps import NESTED_STEPS, ONLY_FORWARD, ONLY_PLAIN, ONLY_REVERSE
from tests.fuzz.step_body import FLOATS, INTS, SIZES, SMALL, WIDE, Body, Value
from tests.fuzz.steps import FREE, STEPS

MESHES = [
    ((8,), "x"),
    ((4, 2), "xy"),
    ((2, 4), "xy"),
    ((2, 2, 2), "xyz"),
    ((2, 3), "xy"),
    ((5,), "x"),
    ((1, 4), "xy"),
]


class Program(NamedTuple):
    """The input of `runner.results` as plain data. `exact` has a bool for each result."""

    text: str
    arguments: tuple[
        tuple[tuple[int, ...], str, str], ...
    ]  # shape, dtype, values: "normal", "special" or "tiny"
    sizes: tuple[int, ...]  # of the mesh
    names: str
    explicit: bool
    specs: tuple[tuple, ...]
    x64: bool
    exact: tuple[bool, ...]
    wild: bool  # infinities, NaN and the greatest numbers are among the arguments
    uneven: bool  # a layout is asked for whose axes do not divide their dims
    seed: int

    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(self.seed)
        return [_values(rng, *argument) for argument in self.arguments]


def _dtype(name: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name) if name in (*SMALL, "bfloat16") else name)


def _values(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, values: str
) -> np.ndarray:
    dtype_ = _dtype(dtype)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if "int" in dtype:
        if dtype in SMALL:
            return rng.integers(0, 8, shape).astype(np.int8).astype(dtype_)
        info = np.iinfo(dtype_)
        small = rng.integers(max(info.min, -9), 10, shape).astype(dtype_)
        ends = rng.choice(
            np.array([info.min, info.max, info.max // 2, 0, 1, info.max - 1], dtype_), shape
        )
        return np.where(rng.random(shape) < (0.4 if values != "normal" else 0.0), ends, small)
    if "complex" in dtype:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype_)
    x = rng.normal(size=shape)
    if values == "normal":
        return x.astype(dtype_)
    import ml_dtypes

    info = ml_dtypes.finfo(dtype_)
    # for wide types slightly less than the largest: whether their partial sums overflow depends on
    # the order
    huge = float(info.max) * (2.0**-17 if float(info.max) > 1e30 else 1.0)
    ends = [0.0, -0.0, 1.0, -1.0, huge, -huge, float(info.smallest_normal), 0.5, -2.5, 1e3]
    if dtype not in SMALL:
        ends += [np.inf, -np.inf, np.nan]
    if values == "tiny":
        ends += [
            float(info.smallest_subnormal),
            -3 * float(info.smallest_subnormal),
            float(info.smallest_normal) * 0.75,
        ]
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < 0.4, rng.choice(np.array(ends), shape), x).astype(
            dtype_
        )


class _ProgramGenerator:
    """The state that all parts of a program share: the mesh, the dtypes, the kinds of values."""

    def __init__(self, r: random.Random):
        self.r = r
        sizes, names = r.choice(MESHES)
        self.sizes, self.names, self.mesh = sizes, names, dict(zip(names, sizes))
        self.explicit = r.random() < 0.2
        self.x64 = r.random() < 0.15
        self.wild = r.random() < 0.3
        self.values = "normal" if not self.wild else r.choice(("special", "special", "tiny"))
        few = r.sample(
            [*INTS, *FLOATS, "bool", "complex64", *(WIDE if self.x64 else ())]
            if self.x64 is False
            else sorted([*INTS, *FLOATS, "bool", "complex64", *WIDE]),
            3,
        )
        self.dtypes = ["float64" if self.x64 and r.random() < 0.5 else "float32", *few]
        self.big = r.random() < 0.06
        self.limit = 1 << (16 if self.big else 9)
        self.uneven = False

    def parts(self, entry) -> int:
        return int(np.prod([self.mesh[a] for a in self.axes(entry)]))

    @staticmethod
    def axes(entry) -> tuple[str, ...]:
        return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)

    def spec(
        self,
        shape: Sequence[int],
        *,
        uneven: bool = False,
        axes: Sequence[str] | None = None,
        chance: float = 0.6,
    ) -> tuple:
        """Return entries of a spec for `shape`; only with `uneven` may they fail to divide it."""
        r = self.r
        free = list(self.names if axes is None else axes)
        r.shuffle(free)
        ragged = uneven and not self.explicit and r.random() < 0.4
        entries: list = []
        for n in shape:
            mine: list[str] = []
            while (
                free
                and r.random() < chance
                and (ragged or n % (self.parts(tuple(mine)) * self.mesh[free[-1]]) == 0)
            ):
                mine.append(free.pop())
            if n % self.parts(tuple(mine)):
                self.uneven = True
            entries.append(None if not mine else mine[0] if len(mine) == 1 else tuple(mine))
        return tuple(entries)


def make(seed: int) -> Program:
    """Return the program number `seed`."""
    r = random.Random(seed)
    maker = _ProgramGenerator(r)
    small = r.random() < 0.08
    values, arguments = [], []
    shapes: list[tuple[int, ...]] = []
    for i in range(r.choice((1, 2, 2, 3))):
        base = tuple(r.choice(SIZES) for _ in range(r.choice((1, 2, 2, 2, 3, 0))))
        shape = r.choice([base, shapes[0], shapes[0][::-1]]) if shapes else base
        if maker.big and shape and i == 0:
            shape = (shape[0] * r.choice((64, 100, 256)), *shape[1:])[:2]
        if r.random() < 0.02 and shape:
            shape = (0, *shape[1:])
        shapes.append(shape)
        dtype = maker.dtypes[0] if i == 0 or r.random() < 0.5 else r.choice(maker.dtypes)
        if small and i == len(shapes) - 1 and i:
            dtype = r.choice(SMALL)
        arguments.append((shape, dtype, maker.values))
        values.append(Value(f"a{i}", shape, dtype))
    specs = tuple(maker.spec(s) for s in shapes)
    b = Body(r, [], maker, max(maker.limit, *(int(np.prod(s)) for s in shapes)))
    for v in values:
        if v.dtype in SMALL:
            b.like(
                f"{v.name}.astype(xp.{'float32' if 'float' in v.dtype else 'int32'})",
                v,
                dtype="float32" if "float" in v.dtype else "int32",
            )
        else:
            b.values.append(v)
    steps = [step for step, weight in (*STEPS, *NESTED_STEPS) for _ in range(weight)]
    for _ in range(r.randint(2, 9)):
        step = r.choice(steps)
        if maker.explicit and step not in FREE and b.values and r.random() < 0.85:
            for x in b.values[-5:]:
                if x.shape and x.name[0] != "u":
                    k = len(b.lines)
                    b.lines.append(f"u{k} = lay({x.name}, {', '.join(['None'] * len(x.shape))})")
                    b.values[b.values.index(x)] = x._replace(name=f"u{k}")
        step(b)
    unused = [
        x for x in b.values if sum(x.name in line for line in b.lines) < 2 and x.name[0] == "v"
    ]
    results = (unused or b.values)[-4:]
    return _finish(maker, b, arguments, values, results, specs, seed)


def _finish(
    maker: _ProgramGenerator,
    b: Body,
    arguments: list,
    values: list[Value],
    results: list[Value],
    specs: tuple,
    seed: int,
) -> Program:
    """Return the text: `f`, its loss, and `main`, which is `f` under transformations."""
    r = maker.r
    names = ", ".join(v.name for v in values)
    text = (
        f"def f({names}):\n"
        + "".join(f"    {line}\n" for line in b.lines)
        + f"    return [{''.join(x.name + ', ' for x in results)}]\n"
    )
    exact: Sequence[bool] = [x.exact for x in results]
    floats = [i for i, v in enumerate(values) if v.dtype in ("float32", "float64")]
    ends = [i for i, x in enumerate(results) if x.kind == "f"]
    kind = r.choice(
        ("plain", "plain", "plain", "grad", "vjp", "jvp", "vmap", "grad of vmap", "checkpoint")
    )
    if (
        not floats
        or not ends
        or maker.wild
        or (maker.explicit and "vmap" in kind)
        or (any(word in text for word in ONLY_FORWARD) and kind not in ("jvp", "vmap"))
        or (any(word in text for word in ONLY_REVERSE) and kind == "jvp")
        or (any(word in text for word in ONLY_PLAIN) and kind != "vmap")
    ):
        kind = "plain"
    total = " + ".join(f"near(xp.sum(xp.sin(o[{i}].astype(xp.float32))))" for i in ends)
    loss = f"def loss({names}):\n    o = f({names})\n    return {total}\n"
    wrt = r.choice(floats) if floats else 0
    near = [f"xp.cos({v.name})" if i in floats else None for i, v in enumerate(values)]
    mains = {
        "plain": "f",
        "grad": f"api.grad(loss, {wrt})",
        "checkpoint": f"api.value_and_grad(api.checkpoint(loss), {wrt})",
        "vjp": f"lambda {names}: (lambda y, back: back(xp.cos(y)))(*api.vjp(lambda z: loss({names.replace(f'a{wrt}', 'z')}), a{wrt}))",
        "jvp": f"lambda {names}: api.jvp(lambda z: loss({names.replace(f'a{wrt}', 'z')}), (a{wrt},), ({near[wrt]},))",
        "vmap": "",
        "grad of vmap": "",
    }
    if "vmap" in kind:
        n = r.choice((2, 3, 4))
        shape, dtype, how = arguments[wrt]
        arguments[wrt] = ((n, *shape), dtype, how)
        specs = (*specs[:wrt], (None, *specs[wrt]), *specs[wrt + 1 :])
        axes = tuple(0 if i == wrt else None for i in range(len(values)))
        mains["vmap"] = f"api.vmap(f, in_axes={axes})"
        mains["grad of vmap"] = (
            f"api.grad(lambda {names}: xp.sum(api.vmap(loss, in_axes={axes})({names})), {wrt})"
        )
    if kind not in ("plain", "vmap"):
        text += loss
        exact = [False] * 2
    text += f"main = {mains[kind]}\n"
    return Program(
        text,
        tuple(arguments),
        maker.sizes,
        maker.names,
        maker.explicit,
        specs,
        maker.x64,
        tuple(exact),
        maker.wild,
        maker.uneven,
        seed,
    )
