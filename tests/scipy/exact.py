"""How far `weft.scipy.special` and `weft.scipy.stats` are from the exact values and slopes, which mpmath gives.

In:  `CASES`: each function with the kinds of its arguments, the exact function, and the arguments to differentiate by.
Out: errors as shares of what is allowed: 8 ulp of the result times 1 + its condition number, the sum over the arguments of
     |x df/dx / f|. Infinite where a finite result is not finite. Slopes are judged by the same rule.
Use: `python -m tests.scipy.exact [NAME...]` measures on a dense grid and writes the rows of the functions into docs/accuracy-scipy.md.
"""

from __future__ import annotations

import functools
import importlib
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import mpmath
import numpy as np
from mpmath import mp, mpf

from tests.scipy.exact_distributions import CASES
from tests.scipy.exact_special import Case

PAGE = Path(__file__).parents[2] / "docs" / "accuracy-scipy.md"
TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
ULPS = 8
STEP = mpf(10) ** -20  # relative
DIGITS = (80, 200, 500, 900)  # as many as differences of differences need


# --- arguments


def _draw(kind: str, count: int, dtype: Any, rng: np.random.Generator) -> np.ndarray:
    """Return arguments of a kind; half of them cover all magnitudes of the type and the kind, including the ends."""
    info = ml_dtypes.finfo(dtype)
    least, greatest, eps = (np.log(float(v)) for v in (info.smallest_subnormal, info.max, info.eps))
    half = count // 2
    sizes = np.concatenate(
        [
            np.exp(rng.uniform(least, greatest, half - 2)),
            [np.exp(least) * 1.01, np.exp(greatest) * 0.99],
        ]
    )
    signs, near = rng.choice([-1.0, 1.0], half), count - half
    little = np.exp(rng.uniform(least, 0, half))
    match kind.partition(":")[0]:
        case "real":
            x = np.concatenate([signs * sizes, rng.normal(0, 4, near)])
        case "positive":
            x = np.concatenate([sizes, np.exp(rng.normal(0, 2, near))])
        case "unit":  # a probability: tails at both ends
            x = np.concatenate(
                [
                    little,
                    rng.uniform(0, 1, near - near // 2),
                    1 - np.exp(rng.uniform(eps, 0, near // 2)),
                ]
            )
        case "sides":  # as much on both sides of zero
            x = np.concatenate(
                [
                    signs * little,
                    rng.uniform(-1, 1, near - near // 2),
                    rng.choice([-1, 1], near // 2) * (1 - np.exp(rng.uniform(eps, 0, near // 2))),
                ]
            )
        case "angle":
            x = np.concatenate([signs * np.minimum(sizes, 1e3), rng.uniform(-7, 7, near)])
        case "turn":
            x = np.concatenate([little, rng.uniform(0, 6.28, near)])
        case "above":  # one: `1 + t`
            x = 1 + np.concatenate([sizes, np.exp(rng.normal(0, 2, near))])
        case "minus":  # more than minus one
            x = np.concatenate([sizes, np.exp(rng.uniform(eps, 0, near)) - 1])
        case "shape":  # a parameter that mpmath can take everywhere
            x = np.exp(rng.uniform(np.log(1e-3), np.log(min(1e4, float(info.max) / 4)), count))
        case "few":
            x = np.exp(rng.uniform(np.log(0.02), np.log(60), count))
        case "count":
            x = np.floor(
                np.exp(rng.uniform(0, np.log(min(1e6, 2 / float(info.eps))), count))
            ) - rng.choice([0, 1], count)
        case "bit":
            x = rng.integers(0, 2, count).astype(float)
        case "order":
            x = rng.integers(0, 9, count).astype(float)
        case _:
            raise ValueError(kind)
    return rng.permutation(x)


def arguments(name: str, type_: str, count: int) -> list[np.ndarray]:
    """Return the arguments of a case, rounded to the type. Arguments of a kind with `:` depend on earlier ones."""
    dtype, case = TYPES[type_], CASES[name]
    rng = np.random.default_rng(zlib.crc32(f"{name.split('.')[-2:]}".encode()))
    out: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for kind in case.kinds:
            x = _draw(kind, count, dtype, rng).astype(dtype).astype(np.float64)
            match kind.partition(":")[2]:
                case "least":  # at most the first argument, as counts are
                    out[0], x = np.minimum(out[0], x), np.maximum(out[0], x)
                case "below":  # at most the first one
                    x = out[0] - np.abs(x)
                case "over":
                    x = out[0] + np.abs(x)
                case "around":  # half of the first arguments are where the distribution is
                    out[0] = np.where(
                        rng.random(count) < 0.5,
                        x * np.exp(rng.normal(0, 1, count) / np.sqrt(1 + x)),
                        out[0],
                    )
                case "near":  # the same of this one and the first
                    x = np.where(
                        rng.random(count) < 0.5,
                        out[0] * np.exp(rng.normal(0, 1, count) / np.sqrt(1 + out[0])),
                        x,
                    )
            out.append(x.astype(dtype).astype(np.float64))
        return [x.astype(dtype) for x in out]


# --- exact values


class Exact(NamedTuple):
    """The exact value and slopes of a function at a point, and the sum of absolute changes of each with the arguments."""

    values: tuple[mpf, ...]
    changes: tuple[mpf, ...]


def _at(case: Case, args: Sequence[float]) -> Exact | None:
    """Return the exact values; None if the function is not finite or mpmath has no value."""
    x = [mpf(float(v)) for v in args]
    steps = [abs(v) * STEP if v else mpf(10) ** -340 for v in x]

    def attempt() -> tuple[Exact, bool]:
        @functools.cache
        def f(moves: tuple[int, ...] = (0,) * len(x)) -> mpf:
            value = mpmath.mpmathify(case.exact(*[v + m * h for v, m, h in zip(x, moves, steps)]))
            if not mp.isfinite(value) or (isinstance(value, mpmath.mpc) and value.imag != 0):
                raise ValueError
            return value.real

        def slope(i: int, j: int = 0, by: int = 0) -> mpf:
            up, down = (
                [by * (k == j) + side * (k == i) for k in range(len(x))] for side in (1, -1)
            )
            return (f(tuple(up)) - f(tuple(down))) / (2 * steps[i])

        values, changes, resolved = [f()], [sum(abs(x[j] * slope(j)) for j in range(len(x)))], True
        noise = abs(values[0]) * mpf(10) ** -mp.dps
        for i in case.by:
            values.append(slope(i))
            changes.append(
                sum(
                    abs(x[j] * (slope(i, j, 1) - slope(i, j, -1)) / (2 * steps[j]))
                    for j in range(len(x))
                )
            )
            resolved &= not any(values) or bool(noise < abs(values[-1]) * steps[i] * STEP / 1000)
        return Exact(tuple(values), tuple(changes)), resolved

    for digits in DIGITS:
        with mp.workdps(digits):
            try:
                point, resolved = attempt()
            except (
                ValueError,
                ZeroDivisionError,
                OverflowError,
                TypeError,
                mpmath.libmp.NoConvergence,
                NotImplementedError,
            ):
                return None
            if resolved:
                break
    return point


@functools.cache
def exact(name: str, type_: str, count: int) -> list[Exact | None]:
    return [_at(CASES[name], point) for point in zip(*arguments(name, type_, count))]


def share_of_allowed(got: float, value: mpf, change: mpf, type_: str) -> float:
    """Return the error as a share of `ULPS` ulp times 1 + the condition number; overflow counts as the next power of 2."""
    info = ml_dtypes.finfo(TYPES[type_])
    limit = mpf(2) ** int(info.maxexp)
    want = max(-limit, min(limit, value))
    if abs(value) >= limit and not np.isfinite(got):
        return 0.0
    if np.isnan(got) or (
        np.isinf(got)
        and abs(value) < limit * (1 - mpf(float(info.eps)) * (1 + min(change / limit, 1e6)) * ULPS)
    ):
        return float("inf")
    have = max(-limit, min(limit, mpf(got) if np.isfinite(got) else limit * int(np.sign(got))))
    exponent = max(mpmath.frexp(want)[1] if want else -(10**9), int(info.minexp) + 1)
    ulp = mpf(2) ** (exponent - int(info.nmant) - 1)
    return float(abs(have - want) / (ULPS * (ulp + min(change, limit) * float(info.eps))))


# --- ours


def computed(name: str, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the values, and the slopes by each argument that has any."""
    import weft
    from weft import numpy as wnp

    *path, last = name.split(".")
    case, module = CASES[name], importlib.import_module(".".join(["weft.scipy", *path]))

    def fun(*args):
        return getattr(module, last)(*args, *case.fixed)

    def both(*args):
        return fun(*args), *[
            weft.grad(lambda *args: wnp.sum(fun(*args)), i)(*args) for i in case.by
        ]

    with weft.enable_x64(True):
        return [np.asarray(out).astype(np.float64) for out in weft.jit(both)(*args)]


class Found(NamedTuple):
    """The worst share of the allowed error, its arguments, the result and the exact one."""

    share: float
    args: tuple
    got: float
    exact: float


def shares(name: str, type_: str, count: int) -> list[Found]:
    """Return the worst error of the value and of each slope."""
    args = arguments(name, type_, count)
    out = []
    with mp.workdps(DIGITS[0]):
        known = [(k, at) for k, at in enumerate(exact(name, type_, count)) if at is not None]
        for part, got in enumerate(computed(name, args) if known else ()):
            share, k, at = max(
                (
                    (
                        share_of_allowed(float(got[k]), at.values[part], at.changes[part], type_),
                        k,
                        at,
                    )
                    for k, at in known
                ),
                key=lambda found: found[:2],
            )
            out.append(
                Found(
                    share,
                    tuple(float(arg[k]) for arg in args),
                    float(got[k]),
                    float(at.values[part]),
                )
            )
    return out


# --- the table


HEAD = "| of `weft.scipy` | float32 | float64 | float16 | bfloat16 |"


def row(name: str, count: int) -> str:
    """Return a row of the table: the worst shares of the value and of the slopes."""
    cells = []
    for type_ in TYPES:
        value, *slopes = [worst[0] for worst in shares(name, type_, count)] or [0.0]
        cells.append(f"{value:.2g}" + (f", {max(slopes):.2g}" if slopes else ""))
    return f"| `{name}` | {' | '.join(cells)} |"


def write_page(page: Path, names: Sequence[str], count: int = 24) -> None:
    """Measure functions, and put their rows into the table of the page; the others stay."""
    text = page.read_text()
    head, tail = text.split(HEAD)
    table, tail = tail.split("\n\n", 1)
    rows = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")} | {
        name: row(name, count) for name in names
    }
    lines = [HEAD, "|---|---|---|---|---|", *[rows[name] for name in CASES if name in rows]]
    page.write_text("\n".join([*head.rstrip("\n").splitlines(), "", *lines]) + "\n\n" + tail)


if __name__ == "__main__":
    write_page(PAGE, sys.argv[1:] or list(CASES))
