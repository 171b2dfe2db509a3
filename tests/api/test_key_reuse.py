"""`debug_key_reuse`: the second use of a key raises, whatever code it passed through; other uses of
keys do not."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax, random
from weft._engine.util.config import config
from weft._engine.util.errors import KeyReuseError
from weft.experimental.key_reuse import (
    Forward,
    KeyReuseSignature,
    Sink,
    Source,
    assert_consumed,
    assert_unconsumed,
    check_key_reuse,
    consume,
    function_type_signature,
    key_reuse_signatures,
)


def two(key):
    return random.normal(key) + random.uniform(key)


def halves(key):
    first, second = random.split(key)
    return random.normal(first) + random.normal(second)


def twice(fun):
    return lambda key: (fun(key), fun(key))


def step(key, x):
    key, now = random.split(key)
    return key, random.normal(now) + x


draw = weft.jit(lambda key: random.normal(key))
kept = weft.jit(lambda key: (random.normal(key), key))
passed = weft.jit(lambda key: key)
XS = np.arange(3, dtype=np.float32)

library_p = weft.extend.core.Primitive("keep")
library_p.def_abstract_eval(lambda k: k)
library_p.def_impl(lambda k: k)


def noisy(x, key):
    return wnp.sin(x * random.normal(key))


WRONG = {
    "a copy": weft.jit(lambda k: random.normal(wnp.array(k, copy=True)) + random.normal(k)),
    "eager": two,
    "jit": weft.jit(two),
    "two programs": twice(draw),
    "nested": weft.jit(lambda k: draw(k) + draw(k)),
    "split": twice(random.split),
    "drawn, then split": lambda k: (draw(k), random.split(k)),
    "parent of a split": weft.jit(lambda k: (random.normal(random.split(k)[0]), random.normal(k))),
    "bits": twice(random.bits),
    "randint": twice(lambda k: random.randint(k, (), 0, 9)),
    "permutation": twice(lambda k: random.permutation(k, 5)),
    "one of several": lambda k: twice(lambda ks: random.normal(ks[0]))(random.split(k, 3)),
    "one of several in a program": weft.jit(
        lambda k: twice(lambda ks: random.normal(ks[1]))(random.split(k, 3))
    ),
    "all, then one": lambda k: (lambda ks: (weft.vmap(random.normal)(ks), random.normal(ks[2])))(
        random.split(k, 3)
    ),
    "reshaped": lambda k: (
        lambda ks: (weft.vmap(random.normal)(ks.reshape(2, 2)[0]), random.normal(ks[1]))
    )(random.split(k, 4)),
    "stacked": lambda k: weft.vmap(random.normal)(wnp.stack([k, k])),
    "given back": lambda k: draw(kept(k)[1]),
    "passed on": lambda k: (draw(k), draw(passed(k))),
    "closed over": lambda k: [weft.jit(lambda: random.normal(k))() for _ in range(2)],
    "closed over, one program": lambda k: (lambda f: (f(), f()))(
        weft.jit(lambda: random.normal(k))
    ),
    "closed over, a program in it": lambda k: (lambda f: (f(), f()))(
        weft.jit(lambda: draw.__wrapped__(k) + weft.jit(lambda: 1.0)())
    ),
    "scan, closed over": lambda k: lax.scan(lambda c, x: (c + random.normal(k), x), 0.0, XS),
    "scan, carried": lambda k: lax.scan(lambda k, x: (k, random.normal(k)), k, XS),
    "scan in a program": weft.jit(
        lambda k: lax.scan(lambda c, x: (c + random.normal(k), x), 0.0, XS)
    ),
    "while": lambda k: lax.while_loop(
        lambda x: x < 5, lambda x: x + wnp.abs(random.normal(k)), 0.0
    ),
    "while, carried": lambda k: lax.while_loop(
        lambda c: c[0] < 5, lambda c: (c[0] + wnp.abs(random.normal(c[1])), c[1]), (0.0, k)
    ),
    "fori_loop": lambda k: lax.fori_loop(0, 3, lambda i, x: x + random.normal(k), 0.0),
    "cond, then again": weft.jit(
        lambda k: lax.cond(True, random.normal, lambda k: 0.0, k) + random.normal(k)
    ),
    "gradient": lambda k: weft.grad(lambda x: x * random.normal(k) * random.normal(k))(1.0),
    "condition and body": lambda k: lax.while_loop(
        lambda c: c[0] < random.uniform(c[1]), lambda c: (c[0] + 1, random.split(c[1])[0]), (0.0, k)
    ),
    "condition, given on": lambda k: lax.while_loop(
        lambda c: c[0] < random.uniform(c[1]), lambda c: (c[0] + 1, c[1]), (0.0, k)
    ),
    "condition, then again": weft.jit(
        lambda k: (
            lax.while_loop(
                lambda c: c[0] < random.uniform(c[1]),
                lambda c: (c[0] + 1, random.fold_in(c[1], 1)),
                (0.0, k),
            ),
            random.normal(k),
        )
    ),
    "recomputed": lambda k: weft.grad(
        weft.checkpoint(lambda x: x * random.normal(k) + wnp.sin(x) * random.normal(k))
    )(1.0),
    "recomputed, then again": lambda k: (
        weft.grad(weft.checkpoint(noisy))(1.0, k),
        random.normal(k),
    ),
    "operation of a library": weft.jit(lambda k: (random.normal(k), library_p.bind(k))),
    "result of a library": weft.jit(lambda k: random.normal(library_p.bind(k))),
}
RIGHT = {
    "split": weft.jit(halves), "split eagerly": halves, "fold_in": lambda k: [random.normal(random.fold_in(k, i)) for i in range(3)],
    "fold_in and draw": weft.jit(lambda k: (random.fold_in(k, 1), random.normal(k))),
    "each of several": lambda k: [*map(draw, random.split(k, 3))],
    "indexed": weft.jit(lambda k: (lambda ks: (random.normal(ks[0]), random.normal(ks[1])))(random.split(k, 3))),
    "both branches": lambda k: lax.cond(True, random.normal, random.uniform, k), "scan over keys": lambda k: lax.scan(
        lambda c, k: (c, random.normal(k)), 0.0, random.split(k, 3)),
    "scan that splits": lambda k: lax.scan(step, k, XS), "loop that folds in": lambda k: lax.fori_loop(
        0, 3, lambda i, x: x + random.normal(random.fold_in(k, i)), 0.0),
    "vmap over keys": lambda k: weft.vmap(random.normal)(random.split(k, 3)), "vmap beside": lambda k: weft.vmap(
        lambda x: random.normal(k) + x)(XS),
    "clone": lambda k: (random.normal(k), random.normal(random.clone(k))),
    "data": lambda k: (random.key_data(k), draw(k), random.key_data(k)),
    "compared": lambda k: (k == k, draw(k), k == k), "gradient": lambda k: weft.grad(lambda x, k: x * random.normal(k))(1.0, k),
    "shuffled": lambda k: random.permutation(k, 5), "chosen": lambda k: random.choice(k, 5, (3,), replace=False),
    "gamma": lambda k: random.gamma(k, 2.0), "categorical": lambda k: random.categorical(k, XS),
    "beta": lambda k: random.beta(k, 1.0, 2.0),
    "poisson": lambda k: random.poisson(k, 3.0),
    "ball": lambda k: random.ball(k, 3),
    "truncated": lambda k: random.truncated_normal(k, 0.0, 1.0),
    "recomputed": lambda k: weft.grad(weft.checkpoint(noisy))(1.0, k),
    "recomputed in a program": weft.jit(lambda k: weft.value_and_grad(weft.checkpoint(noisy))(1.0, k)),
    "recomputed in a loop": lambda k: weft.grad(
        lambda x: lax.scan(lambda c, k: (weft.checkpoint(noisy)(c, k), None), x, random.split(k, 3))[0])(1.0),
    "condition with a key of its own": lambda k: lax.while_loop(
        lambda c: c[0] < random.uniform(c[1]), lambda c: (c[0] + 1, random.fold_in(c[2], 0), random.fold_in(c[2], 1)),
        (0.0, random.fold_in(k, 7), k)),
    "dropout": lambda k: random.bernoulli(k, 0.5, (3,)), "orthogonal": lambda k: random.orthogonal(k, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_reuse_raises(name):
    with weft.debug_key_reuse(True), pytest.raises(KeyReuseError, match=r"test_key_reuse\.py"):
        WRONG[name](random.key(0))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("name", RIGHT)
def test_other_uses_do_not(name, impl):
    with weft.debug_key_reuse(True):
        RIGHT[name](random.key(0, impl=impl))


@pytest.mark.parametrize("name", ["eager", "jit", "scan, carried"])
def test_nothing_is_tracked_unless_asked_for_and_raw_keys_never(name):
    WRONG[name](random.key(0))
    with weft.debug_key_reuse(True):
        WRONG[name](random.PRNGKey(0))


def test_global_setting_checks_calls_on_the_fast_path():
    key = random.key(3)
    values = [float(draw(key)) for _ in range(3)]
    config.update("jax_debug_key_reuse", True)
    try:
        assert float(draw(key)) == values[0]
        for _ in range(2):
            with pytest.raises(
                KeyReuseError, match=r"jit\(<lambda>\): a random key is used for a second time"
            ):
                draw(key)
    finally:
        config.update("jax_debug_key_reuse", False)
    assert float(draw(key)) == values[0]


def test_signatures_of_functions():
    key = random.key(0)
    keys = random.split(key, 2)
    for fun, arguments, entries in [
        (random.bits, (key,), [Sink(0)]),
        (random.split, (key,), [Sink(0), Source(0)]),
        (lambda: random.key(1), (), [Source(0)]),
        (lambda k: k[None], (key,), [Forward(0, 0)]),
        (lambda ks, i: lax.dynamic_slice(ks, (i,), (2,)), (keys, 0), [Forward(0, 0)]),
        (lambda ks, i: lax.dynamic_slice(ks, (i,), (1,)), (keys, 0), [Source(0)]),
        (lambda x, k: (x, k), (1.0, key), [Forward(1, 1)]),
        (random.key_data, (key,), []),
        (lambda ks: random.normal(ks[1]), (keys,), [Sink(0, np.array([False, True]))]),
        (consume, (key,), [Sink(0), Forward(0, 0)]),
    ]:
        assert function_type_signature(fun, *arguments) == KeyReuseSignature(*entries), fun

    def asserted(key):
        assert_unconsumed(key)
        first, _ = random.split(key)
        assert_consumed(key)
        assert_unconsumed(first)
        weft.jit(random.normal)(first)
        assert_consumed(first)

    check_key_reuse(asserted, key)
    check_key_reuse(lambda ks: (consume(ks[0]), assert_consumed(ks, np.array([True, False]))), keys)

    def passed_on(ks, others):
        first = ks[0]
        assert_unconsumed(first)
        assert_consumed(ks, np.array([True, False]))
        together = lax.concatenate([ks[1:], others], 0)
        assert_consumed(ks)
        assert_consumed(others)
        assert_unconsumed(together)
        random.normal(first)

    check_key_reuse(passed_on, keys, random.split(random.key(1)))
    assert key_reuse_signatures[lax.dynamic_update_slice_p] == function_type_signature(
        lax.dynamic_update_slice, keys, keys[:1], (0,)
    )
    with pytest.raises(AssertionError, match="expected to be used up: True"):
        check_key_reuse(assert_consumed, key)
    with pytest.raises(ValueError, match="Sink is immutable"):
        Sink(0).idx = 1
    assert (
        hash(Sink(0, np.array([True, True]))) == hash(Sink(0))
        and Sink(0) != Source(0)
        and Sink(0, np.array([True, False])) != Sink(0)
    )


@pytest.mark.parametrize(
    "fun, words",
    [
        (two, "In jit, argument 0 is already consumed"),
        (twice(random.bits), "In random_bits, argument 0 is already consumed"),
        (WRONG["scan, carried"], "scan body function leads to key reuse"),
        (WRONG["while"], "while_loop body function leads to key reuse"),
        (
            lambda k: lax.while_loop(lambda i: random.uniform(k) < i, lambda i: i + 1, 0.0),
            "while_loop cond function leads to key reuse",
        ),
        (WRONG["condition, given on"], "while_loop cond function leads to key reuse"),
    ],
)
def test_what_a_check_says(fun, words):
    with pytest.raises(KeyReuseError, match=words):
        check_key_reuse(fun, random.key(0))
