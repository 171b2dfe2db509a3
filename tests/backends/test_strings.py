"""Arrays of strings: stored, moved, split and read; programs cannot compute with them."""

import copy
import pickle

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

StringDType = getattr(np.dtypes, "StringDType", None)
pytestmark = pytest.mark.skipif(
    StringDType is None, reason="NumPy before 2.0 has no strings of varying length"
)
WORDS = [
    ["a word beyond what an element holds itself", "b"],
    ["", "\N{GREEK SMALL LETTER ALPHA} and \N{GREEK SMALL LETTER OMEGA}"],
]


@pytest.fixture
def words():
    return np.array(WORDS, dtype=StringDType())


def _mesh():
    return Mesh(np.array(weft.devices()[:2]).reshape(2, 1), ("x", "y"))


@pytest.mark.parametrize(
    "make",
    [
        weft.device_put,
        wnp.asarray,
        wnp.array,
        lambda x: wnp.asarray(x, dtype=StringDType()),
        lambda x: wnp.array(weft.device_put(x)),
        lambda x: weft.device_put(x, weft.devices()[-1]),
        lambda x: wnp.asarray(x, device=NamedSharding(_mesh(), P("x", "y"))),
        lambda x: weft.device_put(x, NamedSharding(_mesh(), P(None, "x"))),
        lambda x: copy.deepcopy(weft.device_put(x)),
        lambda x: pickle.loads(pickle.dumps(weft.device_put(x))),
        lambda x: weft.vmap(lambda row: row)(weft.device_put(x)),
        lambda x: weft.make_array_from_callback(
            x.shape, NamedSharding(_mesh(), P("x")), lambda index: x[index]
        ),
        lambda x: weft.device_put(x, weft.devices("reference")[0]),
    ],
    ids=range(13),
)
def test_made_and_read(make, words):
    x = make(words).block_until_ready()
    assert (
        isinstance(x, weft.Array)
        and (x.shape, x.ndim, x.size) == ((2, 2), 2, 4)
        and x.dtype == StringDType()
    )
    for read in (weft.device_get, np.asarray):
        assert read(x).dtype == StringDType() and read(x).tolist() == WORDS
    assert x.tolist() == WORDS and "a word beyond" in repr(x)
    words[0, 0] = "changed"
    assert x.tolist() == WORDS


def test_shards_and_moves(words):
    split = weft.device_put(words, NamedSharding(_mesh(), P("x")))
    assert [(s.device, s.data.tolist()) for s in split.addressable_shards] == [
        (d, [row]) for d, row in zip(weft.devices()[:2], WORDS)
    ]
    for target in (
        weft.devices()[1],
        NamedSharding(_mesh(), P(None, "x")),
        NamedSharding(_mesh(), P()),
    ):
        moved = weft.device_put(split, target)
        assert moved.tolist() == WORDS and moved.committed
    split.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        weft.device_get(split)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: wnp.asarray(x, dtype=wnp.bfloat16),
        lambda x: wnp.asarray(np.arange(2), dtype=StringDType()),
        lambda x: wnp.asarray(1, dtype=StringDType()),
        lambda x: wnp.asarray(["a"], dtype=StringDType()),
    ],
    ids=range(4),
)
def test_strings_and_numbers_do_not_become_each_other(call, words):
    with pytest.raises(TypeError, match="Cannot make an array with dtype"):
        call(words)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: weft.jit(lambda x: x)(x),
        lambda x: weft.jit(lambda y: (y, wnp.asarray(x)))(1.0),
        lambda x: weft.grad(lambda x: x)(x),
        lambda x: weft.make_jaxpr(lambda x: x)(x),
        lambda x: weft.eval_shape(lambda x: x, x),
        lambda x: weft.vmap(lambda row: row[0])(x),
        lambda x: weft.lax.scan(lambda c, row: (c, row), 0, x),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("make", [weft.device_put, np.asarray], ids=["array", "numpy"])
def test_programs_compute_with_numbers(make, call, words):
    with pytest.raises(TypeError, match=r"(?s)Argument .*is not a valid JAX type"):
        call(make(words))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[0],
        lambda x: x == x,
        lambda x: x.reshape(4),
        lambda x: x.astype(float),
        lambda x: wnp.concatenate([x, x]),
        lambda x: x.T,
    ],
)
def test_methods_that_compute(call, words):
    with pytest.raises(TypeError, match="is not a valid JAX type"):
        call(weft.device_put(words))


def test_strings_have_no_common_type_with_numbers(words):
    x = weft.device_put(words)
    for call in (
        lambda: weft.vmap(lambda row: row + wnp.arange(2))(x),
        lambda: wnp.add(words, 1),
        lambda: wnp.where(True, x, 0),
    ):
        with pytest.raises((ValueError, TypeError), match="StringDType"):
            call()
    kind = StringDType()
    for call in (
        lambda: wnp.zeros(2, kind),
        lambda: wnp.ones(2).astype(kind),
        lambda: wnp.arange(2, dtype=kind),
    ):
        with pytest.raises(TypeError, match="arrays of strings"):
            call()


def test_other_text_is_no_array():
    for value in (np.array(["a"]), np.array([b"a"]), "a", ["a"]):
        with pytest.raises(TypeError):
            weft.device_put(value)
