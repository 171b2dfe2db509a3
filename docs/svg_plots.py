"""Small SVG pictures for pages: lines, points, images, and arrays as their devices hold them.

In:  NumPy arrays; for `array_tiles`, arrays with shardings.
Out: the text of an SVG file, of the same colors on light and dark pages.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

WIDTH, HEIGHT, MARGIN = 440, 240, 34
INK = "#808890"
COLORS = ("#396ab1", "#da7c30", "#3e9651", "#cc2529", "#6b4c9a", "#92842a", "#1f9c9c", "#535154")


def document(width: float, height: float, parts: Sequence[str]) -> str:
    """Return an SVG file with the given elements."""
    style = f"font:12px sans-serif;fill:{INK}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
    return "\n".join([f'{head} width="{width:g}" style="{style}">', *parts, "</svg>", ""])


def label(x: float, y: float, text: str, anchor: str = "middle", color: str = INK) -> str:
    """Return a text element."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{text}</text>'


def tile(x: float, y: float, size: tuple[float, float], color: str, opacity: float = 1) -> str:
    """Return a rectangle of the given width and height."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}" '
        f'fill="{color}" fill-opacity="{opacity:g}" stroke="#fff" stroke-width="0.6"/>'
    )


class Axes:
    """The frame of a plot: maps data to pixels."""

    def __init__(self, xs: np.ndarray, ys: np.ndarray):
        self.low = np.array([xs.min(), ys.min()], float)
        self.span = np.array([np.ptp(xs) or 1, np.ptp(ys) or 1], float)
        frame = (MARGIN, HEIGHT - MARGIN, WIDTH - 10, 10)
        left, bottom, right, top = frame
        self.parts = [
            f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="{INK}"/>',
            label(left, HEIGHT - 14, f"{xs.min():.3g}", "start"),
            label(right, HEIGHT - 14, f"{xs.max():.3g}", "end"),
            label(left - 4, bottom, f"{ys.min():.2g}", "end"),
            label(left - 4, top + 8, f"{ys.max():.2g}", "end"),
        ]

    def pixels(self, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
        """Return points in pixels, a row each."""
        unit = (np.stack([xs, ys], 1) - self.low) / self.span
        return np.array([MARGIN, HEIGHT - MARGIN]) + unit * np.array(
            [WIDTH - MARGIN - 10, 10 - HEIGHT + MARGIN]
        )


def plot(
    lines: Mapping[str, tuple[Any, Any]] = {},  # noqa: B006
    points: Mapping[str, tuple[Any, Any]] = {},  # noqa: B006
    band: tuple[Any, Any, Any] | None = None,
) -> str:
    """Return a plot of lines and points by name; `band` has xs, lower and upper bounds."""
    series = [np.asarray(s, float) for s in [*lines.values(), *points.values()]]
    bounds = [] if band is None else [np.asarray([band[0], side], float) for side in band[1:]]
    axes = Axes(*np.concatenate(series + bounds, axis=1))
    parts = list(axes.parts)
    if bounds:
        lower, upper = (axes.pixels(*bound) for bound in bounds)
        around = np.concatenate([lower, upper[::-1]])
        parts.append(f'<path d="{path(around)}Z" fill="{COLORS[0]}" fill-opacity="0.2"/>')
    colors = dict(zip([*lines, *points], COLORS))
    for name, (xs, ys) in lines.items():
        drawn = path(axes.pixels(np.asarray(xs, float), np.asarray(ys, float)))
        parts.append(f'<path d="{drawn}" fill="none" stroke="{colors[name]}" stroke-width="1.8"/>')
    for name, (xs, ys) in points.items():
        for x, y in axes.pixels(np.asarray(xs, float), np.asarray(ys, float)):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colors[name]}"/>')
    for row, (name, color) in enumerate(colors.items()):
        parts.append(label(WIDTH - 14, 22 + 15 * row, name, "end", color))
    return document(WIDTH, HEIGHT, parts)


def path(pixels: np.ndarray) -> str:
    """Return the path through points."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in pixels)


def image(values: Any, text: str = "", side: float = 200) -> str:
    """Return a matrix as squares whose opacity is the value, in 16 levels."""
    values = np.asarray(values, float)
    levels = np.rint(15 * (values - values.min()) / (np.ptp(values) or 1)).astype(int)
    cell = side / max(values.shape)
    parts = []
    for level in range(1, 16):
        outline = "".join(
            f"M{10 + start * cell:.1f} {10 + row * cell:.1f}h{length * cell:.1f}v{cell:.1f}"
            f"h{-length * cell:.1f}z"
            for row, start, length in runs(levels == level)
        )
        opacity = f'fill-opacity="{level / 15:.2f}"'
        parts.append(f'<path d="{outline}" fill="{COLORS[0]}" {opacity}/>')
    width, height = values.shape[1] * cell, values.shape[0] * cell
    return document(width + 20, height + 40, [*parts, label(10, height + 28, text, "start")])


def runs(mask: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield the row, start and length of each run of True along the rows of a matrix."""
    for row, line in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
        for start, end in edges.reshape(-1, 2):
            yield row, int(start), int(end - start)


def array_tiles(arrays: Mapping[str, Any], scale: float = 14) -> str:
    """Return matrices side by side, cut into the tiles that devices hold and colored by the lowest device.

    `scale` is the number of pixels for each row or column; long dims are drawn with 10 elements.
    """
    parts, left, heights = [], 10.0, []
    for name, array in arrays.items():
        sizes = [min(n, 10) * scale for n in array.shape]
        holders: dict[tuple, list[int]] = {}
        for device, index in array.sharding.devices_indices_map(array.shape).items():
            bounds = [part.indices(n)[:2] for part, n in zip(index, array.shape)]
            holders.setdefault(tuple(bounds), []).append(device.id)
        for bounds, ids in holders.items():
            (top, bottom), (start, stop) = (
                [position / n * size for position in pair]
                for pair, n, size in zip(bounds, array.shape, sizes)
            )
            size = (stop - start, bottom - top)
            parts.append(tile(left + start, 30 + top, size, COLORS[min(ids) % len(COLORS)]))
            shown = ids_text(sorted(ids))
            middle = (left + start + size[0] / 2, 34 + top + size[1] / 2)
            parts.append(label(*middle, shown, color="#fff"))
        shape = " x ".join(map(str, array.shape))
        parts.append(label(left + sizes[1] / 2, 20, f"{name}: {shape}"))
        heights.append(sizes[0])
        left += max(sizes[1], 70) + 40
    return document(left - 20, max(heights) + 50, parts)


def ids_text(ids: list[int]) -> str:
    """Return device ids, with a range where they are consecutive."""
    if len(ids) > 2 and ids == list(range(ids[0], ids[-1] + 1)):
        return f"{ids[0]}-{ids[-1]}"
    return " ".join(map(str, ids))
