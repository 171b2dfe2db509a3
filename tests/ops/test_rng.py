"""threefry2x32: the known answers of Random123, and the laws."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.laws import Case, check_all, run
from weft._engine.core.stage import stage
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.rng import threefry2x32

WORDS = np.random.default_rng(0).integers(0, 2**32, size=(4, 4, 6), dtype=np.uint32)

KNOWN = [
    ((0, 0, 0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF,) * 4, (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize("words, want", KNOWN)
def test_known_answers(words, want):
    assert tuple(int(w) for w in run(threefry2x32, [np.uint32(w) for w in words])) == want


CASES = [
    Case("arrays", threefry2x32, tuple(WORDS)),
    Case(
        "one key",
        threefry2x32,
        (np.uint32(1), np.uint32(2), WORDS[2], WORDS[3]),
        lambda a, b, x, y: run(threefry2x32, [np.full_like(x, a), np.full_like(x, b), x, y]),
    ),
    Case(
        "one key and high word", threefry2x32, (np.uint32(1), np.uint32(2), np.uint32(0), WORDS[3])
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_laws(case):
    check_all(case)


def test_words_must_be_uint32():
    with pytest.raises(TypeError, match="takes 4 uint32 operands"):
        stage(lambda x: threefry2x32(x, x, x, x), [ShapedArray((3,), np.int32)])
