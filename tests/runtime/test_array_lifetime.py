"""Lifetime of `Array`: waiting, deletion, donation, views."""

import copy
import pickle

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.runtime.array_checks import same


def test_values_are_ready():
    x = wnp.arange(3)
    assert x.is_ready() and x.block_until_ready() is x and not x.is_deleted()
    tree = {"a": x, "b": 1}
    assert weft.block_until_ready(tree) == tree


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x,
        lambda x: [1, (x,)],
        lambda x: {"b": None, "a": [x]},
        lambda x: weft.tree_util.Partial(max, x),
    ],
)
def test_waiting_for_a_tree_finds_deleted_arrays(wrap):
    x = wnp.arange(3)
    tree = wrap(x)
    assert weft.block_until_ready(tree) is tree
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        weft.block_until_ready(tree)


USES = {
    "operator": lambda x: x + 1,
    "numpy": np.asarray,
    "jit": weft.jit(lambda x: x * 2),
    "device_put": lambda x: weft.device_put(x, weft.devices()[1]),
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "shard": lambda x: x.addressable_shards[0].data,
    "tolist": lambda x: x.tolist(),
    "index": lambda x: x[0],
    "iterate": list,
    "update": lambda x: x.at[0].set(1),
    "device_get": weft.device_get,
    "wait": lambda x: x.block_until_ready(),
    "grad": weft.grad(lambda x: x.sum()),
    "vmap": weft.vmap(lambda x: x + 1),
    "dlpack": np.from_dlpack,
}


@pytest.mark.parametrize("name", USES)
def test_deleted_arrays_refuse_use(name):
    x = wnp.ones(16)
    x.delete()
    with pytest.raises(RuntimeError, match=r"deleted with shape=float32\[16\].*donate"):
        USES[name](x)


def test_deleted_arrays_still_know_their_type():
    x = wnp.ones((2, 3))
    x.delete()
    x.delete()  # again: nothing happens
    assert x.is_deleted() and x.shape == (2, 3) and len(x) == 2 and x.sharding.num_devices == 1
    for show in (repr, str, print):
        with pytest.raises(RuntimeError, match=r"deleted with shape=float32\[2,3\]"):
            show(x)


def test_donated_arrays_are_deleted_and_others_are_not():
    double = weft.jit(lambda x, y: (x * 2, y + 1), donate_argnums=0)
    x, y = wnp.ones(64), wnp.ones(64)
    double(x, y)
    assert x.is_deleted() and not y.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        double(x, y)


def test_a_shard_survives_its_array(split):
    a, value = split
    shard = a.addressable_shards[0].data
    a.delete()
    same(shard, value[:2, :2])


def test_views_that_were_asked_for_do_not_outlive_their_array(split):
    step = weft.jit(lambda x: x + 1, donate_argnums=0)
    x = wnp.zeros(1 << 16)
    for turn in range(3):
        seen = np.asarray(x)
        assert (
            np.shares_memory(seen, np.asarray(x))
            and x.addressable_shards[0].data is x.addressable_shards[0].data
        )
        later = step(x)
        assert (seen == turn).all() and x.is_deleted()
        for ask in (np.asarray, weft.Array.addressable_shards.fget):
            with pytest.raises(RuntimeError, match="deleted"):
                ask(x)
        x = later
