"""Random products and convolutions in tiles: `python -m tests.codegen.tile_products --count 4500 --convolutions 500`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

import weft
from tests.codegen.gemm_cases import Case, check
from tests.harness import tile_machine

TYPES = [
    ("bf16", "f32", "f32"),
    ("bf16", "f32", "bf16"),
    ("i8", "i32", "i32"),
    ("u8", "i32", "i32"),
]


def random_case(seed: int) -> Case:
    """Return a product of random shape, layout, types and epilogue."""
    rng = np.random.default_rng(seed)

    def size(limit: int) -> int:
        """Return a size, often one near a multiple of a tile."""
        near = 16 * int(rng.integers(1, limit // 16)) + int(rng.integers(-1, 2))
        return near if rng.random() < 0.4 else int(rng.integers(1, limit))

    batch = tuple(int(x) for x in rng.integers(1, 4, rng.integers(0, 3)))
    outer = tuple(int(x) for x in rng.integers(1, 4, rng.integers(0, 2)))
    epilogue = bool(rng.random() < 0.4)
    orders = (
        str(rng.choice(["mk", "km"])),
        str(rng.choice(["kn", "nk"])),
        "mn" if epilogue else str(rng.choice(["mn", "nm"])),
    )
    shared = [str(rng.choice(["a", "b"]))] if batch and rng.random() < 0.4 else []
    limit = 64 if batch or outer else 220
    return Case(
        size(limit), size(limit), size(4 * limit), TYPES[rng.integers(len(TYPES))], batch, outer, orders,
        spread=int(rng.choice([1, 1, 2, 3])), broadcast=tuple(shared), epilogue=epilogue,
    )  # fmt: skip


def check_convolution(seed: int) -> None:
    """Compare a random convolution, with an epilogue, with the same one of wide numbers."""
    rng = np.random.default_rng(seed)
    kind, out = [("bfloat16", None), ("bfloat16", "float32"), ("int8", "int32")][rng.integers(3)]
    batch, inner, outer, groups = (int(rng.integers(1, n)) for n in (4, 40, 50, 4))
    size, taps = rng.integers(6, 24, 2), rng.integers(1, 5, 2)
    numbers = ("NCHW", "OIHW", "NCHW") if rng.random() < 0.5 else ("NHWC", "HWIO", "NHWC")
    image, kernel = (batch, inner * groups, *size), (outer * groups, inner, *taps)
    if numbers[0] == "NHWC":
        image = (batch, *size, inner * groups)
        kernel = (*taps, inner, outer * groups)
    options = {
        "window_strides": tuple(map(int, rng.integers(1, 3, 2))),
        "padding": str(rng.choice(["SAME", "VALID"])),
        "rhs_dilation": tuple(map(int, rng.integers(1, 3, 2))),
        "dimension_numbers": numbers,
        "feature_group_count": groups,
    }
    shift = int(rng.integers(-3, 4))
    end = [lambda y: y, lambda y: y + shift, lambda y: weft.nn.relu(y) * 2][rng.integers(3)]

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        if kind == "int8":
            return rng.integers(-128, 128, shape).astype(np.int8)
        return np.asarray(weft.numpy.asarray(rng.standard_normal(shape), kind))

    def apply(x: Any, w: Any, preferred: Any) -> Any:
        return end(weft.lax.conv_general_dilated(x, w, preferred_element_type=preferred, **options))

    x, w = draw(image), draw(kernel)
    result = weft.jit(lambda x, w: apply(x, w, out and np.dtype(out)))(x, w)
    wide = np.int32 if kind == "int8" else np.float32
    want = np.asarray(weft.jit(lambda x, w: apply(x, w, None))(x.astype(wide), w.astype(wide)))
    if kind == "int8":
        np.testing.assert_array_equal(result, want)
        return
    rounding = 2**-7 if out is None else 2**-16
    close = rounding * float(np.abs(want).max(initial=1))
    np.testing.assert_allclose(np.asarray(result, np.float32), want, rtol=rounding, atol=close)


def main() -> None:
    """Check random products and convolutions, and count products in tiles."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--convolutions", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    if reason := tile_machine.reason():
        sys.exit(f"tile_products: {reason}")
    tile_machine.use()
    in_tiles = 0
    for seed in range(arguments.first, arguments.first + arguments.count):
        try:
            in_tiles += check(random_case(seed))[0].endswith("_tiles_tile")
        except AssertionError as error:
            raise SystemExit(f"seed {seed}: {error}") from error
    for seed in range(arguments.first, arguments.first + arguments.convolutions):
        try:
            check_convolution(seed)
        except AssertionError as error:
            raise SystemExit(f"convolution {seed}: {error}") from error
    print(
        f"{arguments.count} products are right, {in_tiles} of them in tiles; {arguments.convolutions} convolutions are right"
    )


if __name__ == "__main__":
    main()
