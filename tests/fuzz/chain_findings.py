"""Minimized programs of faults that chains detected; CI always runs them.

Each is a `Chain` in the form of `program`: arguments as (shape, dtype, values, scale), statements
as text, and names of the results. A statement in `near(...)` is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.fuzz.chain_body import ChainArgument, ChainValue, Statement
from tests.fuzz.chains import Chain


def program(arguments: Sequence[tuple], lines: Sequence[str], **parts) -> Chain:
    """Return a chain from the text of its statements; the last one is the result."""
    statements = []
    for line in lines:
        name, _, text = line.partition(" = ")
        exact = not text.startswith("near(")
        value = ChainValue(name, (), "float32", exact)
        statements.append(Statement(value, text if exact else text[5:-1], "", ()))
    chain_arguments = tuple(ChainArgument(f"a{i}", *a) for i, a in enumerate(arguments))
    parts.setdefault("results", (statements[-1].result,))
    return Chain(chain_arguments, tuple(statements), **parts)


FINDINGS = {
    "masked softmax of columns": program(
        [((128, 1000), "float32", "whole", 30.0), ((128, 1000), "bool", "normal", 1.0)],
        [
            "v0 = near(nn.softmax(a0, 0, where=a1))",
            "v1 = near(xp.where(xp.isfinite(v0), v0, 0))",
        ],
        seed=992,
    ),
    "log_softmax over an axis that is not the last": program(
        [((48, 513), "float32", "normal", 1e4)], ["v0 = near(nn.log_softmax(a0, 0))"], seed=937711
    ),
    "logsumexp over an axis that is not the last": program(
        [((8, 1, 35), "float32", "normal", 1.0), ((8, 31, 35), "float32", "normal", 1.0)],
        ["v0 = near((a0 - a1) * 300)", "v1 = near(nn.logsumexp(v0, 1))"],
    ),
    "gradient of a scan whose result is sliced": program(
        [((20, 32, 64), "float32", "normal", 1.0)],
        [
            "v0 = near(lax.scan(lambda c, s: (c * 0.5 + s,) * 2, xp.zeros_like(a0[0]), a0)[1])",
            "v1 = near(xp.square(v0[:-1] - a0[1:]))",
        ],
        transformation="grad",
    ),
    "gradient of a scan, its inputs in whole numbers": program(
        [((59895, 3), "float32", "whole", 1.0)],
        [
            "v0 = near(lax.scan(lambda c, s: ((c * 0.5) + s, c + 2 * s), xp.zeros_like(a0[0]), "
            "a0, reverse=True, unroll=2)[1])",
            "v1 = near(xp.split(v0, [16132], 0)[1])",
        ],
        transformation="grad",
        seed=100605,
    ),
    "padding between the elements of a dim of size 1": program(
        [((1, 4, 5), "float32", "normal", 1.0)],
        ["v0 = lax.pad(a0, xp.float32(0), [(2, 0, 1), (1, 0, 0), (1, 1, 0)])"],
        seed=24794,
    ),
    "dilated convolution of a spatial dim of size 1": program(
        [((8, 8, 1, 3), "float32", "normal", 1.0), ((5, 1, 3, 8), "float32", "normal", 0.3)],
        [
            "v0 = near(lax.conv_general_dilated(a0, a1, (1, 1), [(0, 1), (2, 0)], (1, 2), (1, 2), "
            "('NHWC', 'HWIO', 'NHWC')))",
        ],
        seed=4386,
    ),
    "maxima of a rounded bfloat16 row": program(
        [((1, 5), "bfloat16", "normal", 1.0)],
        ["v0 = near(a0 / 3)", "v1 = near(v0 == xp.max(v0, 1, keepdims=True))"],
    ),
    "gradient of the maximum of a bfloat16 row": program(
        [((1, 5), "bfloat16", "normal", 1.0)],
        ["v0 = near(a0 / 3)", "v1 = near(xp.max(v0, 1))"],
        transformation="grad",
    ),
    "two roundings of a bfloat16 product": program(
        [((1, 17, 5), "bfloat16", "normal", 300.0)],
        ["v0 = near(nn.softmax(a0 @ xp.swapaxes(a0, -1, -2) / 5, -1))"],
    ),
    "strided convolution in float16, transpose": program(
        [((2, 3, 1), "float16", "normal", 1.0), ((2, 8, 1), "float16", "normal", 1.0)],
        [
            "v0 = near(lax.conv_general_dilated(a0, a1, (2,), [(1, 1)], (1,), (1,), "
            "('WNC', 'WOI', 'WCN')))",
            "v1 = near(xp.transpose(v0, (1, 0, 2)))",
        ],
        seed=66,
    ),
    "convolution, transpose, stack": program(
        [
            ((2, 5, 9, 8), "float32", "normal", 1.0),
            ((3, 5, 4, 4), "float32", "normal", 0.1),
        ],
        [
            "v0 = near(lax.conv_general_dilated(a0, a1, (1, 1), 'VALID'))",
            "v1 = xp.transpose(v0, (0, 2, 3, 1))",
            "v2 = xp.stack([v1])",
        ],
        results=(ChainValue("v2", (), "float32", False),),
    ),
}

#: findings whose faults are not fixed
OPEN: set[str] = set()
