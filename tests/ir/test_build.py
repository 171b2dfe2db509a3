"""The Loops builder: folding, affine indices, ranges."""

import itertools
import random

import pytest

from weft._engine.ir.build import GREATEST, LEAST, LoopsBuilder
from weft._engine.ir.loops import Const, Load, ScalarOp


def test_equal_expressions_are_one_object():
    b = LoopsBuilder()
    x, y = b.load("x", b.index("i", 8), "f32"), b.const(2.0, "f32")
    assert b.op("mul", x, y) is b.op("mul", x, 2.0)
    assert b.const(0.0, "f32") is not b.const(-0.0, "f32")


def test_index_arithmetic_is_affine():
    b = LoopsBuilder()
    i, j = b.index("i", 4), b.index("j", 8)
    a = b.iadd(b.imul(b.iadd(i, 3), 8), j)
    assert b.isub(a, b.iadd(b.imul(i, 8), 24)) is j
    assert b.idiv(a, 8) is b.iadd(i, 3) and b.irem(a, 8) is j
    assert b.isub(i, i) is b.const(0, "i64")
    assert b.range(a) == (24, 55)


def test_linear_sums_are_those_of_single_steps():
    b = LoopsBuilder()
    i, j = b.index("i", 4), b.index("j", 8)
    assert b.linear([(i, 8), (j, 1)], 3) is b.iadd(b.iadd(b.imul(i, 8), j), 3)
    assert b.linear([(i, 8), (-3, 1), (j, 2), (3, 1)]) is b.iadd(b.imul(i, 8), b.imul(j, 2))
    assert b.linear([(i, 1), (-3, 1)], 3) is i and b.linear([(i, 0), (2, 3)]).value == 6


def test_quotient_and_remainder_join_again():
    b = LoopsBuilder()
    k = b.index("k", 35)
    q, r = b.idiv(k, 5), b.irem(k, 5)
    assert b.iadd(b.imul(q, 5), r) is k
    assert b.iadd(b.imul(q, 10), b.imul(r, 2)) is b.imul(k, 2)


def test_parts_of_parts_join_again():
    b = LoopsBuilder()
    k = b.index("k", 5000)
    q = b.idiv(k, 128)
    parts = [(b.idiv(q, 2), 256), (b.irem(q, 2), 128), (b.irem(k, 128), 1)]
    assert parts[0][0] is b.idiv(k, 256)
    for order in itertools.permutations(parts):
        total = b.const(0, "i64")
        for part, step in order:
            total = b.iadd(total, b.imul(part, step))
        assert total is k


def test_comparisons_are_decided_by_ranges():
    b = LoopsBuilder()
    i = b.index("i", 4)
    assert b.icmp("lt", i, 4).value is True and b.icmp("ge", i, 4).value is False
    assert isinstance(b.icmp("lt", i, 3), ScalarOp)
    assert b.icmp("eq", i, 9).value is False
    assert b.imin(i, 7) is i and b.imax(i, 7).value == 7


def test_what_may_wrap_has_no_range():
    """A bool plus the largest i64 is the smallest one, not above it."""
    b = LoopsBuilder()
    x = b.cast(b.ref("x", "bool"), "i64")
    assert b.range(b.iadd(x, GREATEST)) == (LEAST, GREATEST) and b.range(
        b.iadd(x, GREATEST - 1)
    ) == (GREATEST - 1, GREATEST)
    assert isinstance(b.icmp("gt", b.iadd(x, GREATEST), 0), ScalarOp)
    y = b.imax(b.ref("y", "i64"), 0)
    assert b.range(b.iadd(y, 1)) == (LEAST, GREATEST) and b.range(b.isub(y, 1)) == (
        -1,
        GREATEST - 1,
    )


def test_remainders_of_data_may_be_negative():
    """The data may be used as an index elsewhere, even one that is negative where its guard is false."""
    b = LoopsBuilder()
    place = b.isub(b.index("i", 40), b.index("j", 6))
    assert b.range(b.irem(place, 7)) == (0, 6)
    data = b.op("rem", place, b.const(7, "i64"))
    assert isinstance(b.icmp("lt", data, 0), ScalarOp) and data.op == "rem"
    other = LoopsBuilder()
    again = other.copy_operation(
        data, (other.isub(other.index("k", 40), other.index("j", 6)), other.const(7, "i64")), b
    )
    assert isinstance(other.icmp("lt", again, 0), ScalarOp)


def test_guards():
    b = LoopsBuilder()
    i = b.index("i", 4)
    assert b.load("x", i, "f32", b.const(True, "bool")) == Load("x", i, "f32")
    assert b.load("x", i, "f32", b.const(False, "bool")) is b.const(0.0, "f32")
    assert b.logical_and(None, None) is None
    assert b.logical_and(None, b.icmp("lt", i, 3)) is b.icmp("lt", i, 3)


def test_a_load_is_zero_where_its_guard_is_false():
    b = LoopsBuilder()
    i, n = b.index("i", 9), b.load("n", 0, "i64")
    low, high = b.op("le", n, i), b.op("lt", i, b.op("mul", n, n))
    both = b.op("and", low, high)
    x = b.load("x", i, "f32", both)
    for cond in (low, high, both):
        assert b.op("select", cond, x, 0.0) is x
    for cond, other in ((both, 1.0), (both, -0.0), (b.op("lt", n, 3), 0.0)):
        assert b.op("select", cond, x, other) is not x


def test_halves_are_computed_in_f32_and_rounded_when_stored():
    b = LoopsBuilder()
    x = b.load("x", b.index("i", 4), "bf16")
    total = b.op("add", x, x)
    assert total.type == "f32"
    assert b.storage_form(total, "bf16").type == "bf16"
    assert b.storage_form(b.cast(x, "f32"), "bf16") is x  # nothing was computed: no rounding
    assert b.cast(total, "bf16").type == "f32" and b.cast(total, "bf16") is not total
    assert b.const(1.001, "bf16") == Const(1.0, "f32")
    assert b.bitcast(total, "u16", "bf16").args[0].type == "bf16"


def test_random_index_expressions_mean_what_they_say():
    rnd = random.Random(0)
    for _ in range(200):
        b = LoopsBuilder()
        sizes = {"i": rnd.randint(1, 5), "j": rnd.randint(1, 6), "k": rnd.randint(1, 4)}
        env = {n: rnd.randrange(s) for n, s in sizes.items()}
        pool = [(b.index(n, s), env[n]) for n, s in sizes.items()]
        for _ in range(8):
            pool.append(extend_expression(b, rnd, pool))
        for x, want in pool:
            assert value(x, env) == want
            low, high = b.range(x)
            assert low <= want <= high


def extend_expression(b, rnd, pool):
    """Return an expression made from others, and its value."""
    (x, f), (y, g), c = rnd.choice(pool), rnd.choice(pool), rnd.randint(1, 7)
    return rnd.choice(
        [
            (b.iadd(x, y), f + g),
            (b.imul(x, c), f * c),
            (b.idiv(x, c), f // c),
            (b.irem(x, c), f % c),
            (b.iadd(x, c), f + c),
            (b.imin(x, y), min(f, g)),
            (b.imax(x, c), max(f, c)),
        ]
    )


def value(x, env):
    if isinstance(x, Const):
        return x.value
    if isinstance(x, ScalarOp):
        a, b = (value(y, env) for y in x.args)
        return {
            "add": a + b,
            "mul": a * b,
            "div": a // b if b else 0,
            "rem": a % b if b else 0,
            "min": min(a, b),
            "max": max(a, b),
        }[x.op]
    return env[x.name]


def test_division_takes_rows_and_columns_apart():
    """A flat position over rows and columns, split into (blocks, rows, columns), is the flat
    position again."""
    b = LoopsBuilder()
    row, col = b.index("row", 1024), b.index("col", 256)
    flat = b.iadd(b.imul(row, 256), col)
    block, inner = b.idiv(flat, 128 * 256), b.irem(b.idiv(flat, 256), 128)
    assert block is b.idiv(row, 128)
    assert b.iadd(b.iadd(b.imul(block, 128 * 256), b.imul(inner, 256)), col) is flat


def test_loops_of_one_name_are_no_longer_than_the_first():
    b = LoopsBuilder()
    c = b.index("c", 8)
    assert b.icmp("lt", b.iadd(c, 1), 9).value and b.index("c", 3) is b.index("c") is c
    with pytest.raises(
        ValueError, match="'c' has extent 9, but comparisons were folded for extent 8"
    ):
        b.index("c", 9)
