"""Types of results under explicit sharding, side by side with the peer's. Run with `-m oracle` and WEFT_ORACLE_PYTHON set."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import weft
import weft.nn
import weft.random
from tests.explicit.peer import scope_of, types
from weft import numpy as wnp
from weft.sharding import AxisType, NamedSharding, P, use_mesh

MESH = weft.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Explicit, AxisType.Explicit))

EQUAL = """
x + x; x + rows; rows + columns; x * 2; x + row; rows + row; -x; xp.sin(x); x.astype(xp.int32); xp.maximum(x, 0); xp.clip(x, 0, 1)
x.sum(0); x.sum(1); x.sum(); x.mean(1); x.var(0); xp.argmax(x, 1); xp.linalg.norm(x); nn.softmax(x); x == rows; xp.where(x > 1, x, 0.)
rows @ v; x @ v; rows @ w; rows @ xp.eye(16); xp.outer(k, xp.ones(8)); xp.dot(x, w, out_sharding=P('a'))
xp.dot(x, w, out_sharding=P(None, None)); xp.matmul(rows, v, out_sharding=P('a')); xp.einsum('ij,kj->ik', x, x, out_sharding=P('a', None))
xp.einsum('bqhd,bkhd->bhqk', heads, heads); lax.dot_general(heads, heads, (((3,), (3,)), ((0, 2), (0, 2))))
x.T; xp.swapaxes(heads, 1, 2); x[:, None]; x.reshape(8, 1, 16); x.reshape(8, 4, 4); x.reshape(2, 4, 16); x.reshape(4, 2, 16)
x.reshape(128)
rows.reshape(128); rows.reshape(8, 4, 4); x.reshape(2, 4, 16).reshape(8, 16)
xp.reshape(x, (128,), out_sharding=P('a')); x[None].squeeze(0); x[::-1]; lax.rev(x, (1,))
rows[:, :3]; rows[:, 0]; lax.slice(x, (0, 0), (4, 16)); lax.dynamic_slice(x, (0, 0), (4, 16)); xp.split(x, 2); xp.split(rows, 2, 1)
lax.dynamic_update_slice(x, lax.slice(x, (0, 0), (4, 16)), (0, 0))
xp.concatenate([x, x]); xp.concatenate([rows, rows], 1); xp.stack([x, x]); xp.pad(x, ((0, 0), (2, 2))); xp.tile(rows, (1, 2))
xp.repeat(rows, 2, axis=1); xp.broadcast_to(k, (4, 8)); xp.broadcast_to(k, (4, 8), out_sharding=P('b', 'a')); xp.tril(x)
xp.diag(k); xp.diag(row, 4); xp.diag(k, -2); xp.diag(reshard(x, P(None, None)), 1)
xp.cumsum(rows, 1); xp.sort(rows, 1); lax.top_k(rows, 3); xp.fft.fft(rows); xp.fft.fft(x); xp.fft.fft2(x); rows[:, xp.array([0, 2])]
x.at[xp.array([0, 2])].get(out_sharding=P(None, 'b')); xp.take_along_axis(rows, xp.zeros((8, 1), xp.int32), 1)
lax.conv(image, xp.ones((2, 2, 3, 3)), (1, 1), 'SAME'); lax.reduce_window(rows, -xp.inf, lax.max, (1, 2), (1, 2), 'VALID')
random.normal(random.key(0), (8, 16), out_sharding=P('a', 'b')); xp.arange(8, out_sharding=P('a')); xp.ones((8, 4), out_sharding=P('a'))
lax.broadcasted_iota(xp.float32, (8, 4), 0, out_sharding=P('a')); xp.zeros_like(x); nn.one_hot(k.astype(xp.int32), 16)
reshard(x, P('b', 'a')); reshard(x, P(None, None)); lax.with_sharding_constraint(x, P('a', 'b'))
api.vmap(lambda r: r.sum())(x); api.vmap(lambda r: xp.dot(r, xp.ones(16)))(rows)
api.grad(lambda a: (a + x).sum())(rows); api.grad(lambda q: (rows @ q).sum())(v); api.grad(lambda q: (xp.tanh(rows @ q) ** 2).mean())(v)
api.grad(lambda q: xp.dot(x, q, out_sharding=P('a')).sum())(w); api.value_and_grad(lambda q: nn.log_softmax(q).sum())(rows)
lax.scan(lambda c, r: (c + r, c * 2), row, columns); lax.fori_loop(0, 3, lambda i, a: a * 2, x)
lax.cond(True, lambda a: a, lambda a: a * 2, x)
auto_axes(lambda p, q: p @ q, out_sharding=P('a', None))(x, w); api.jit(lambda a: a.T)(x); api.jit(lambda a: (a.sum(0), a * 2))(x)
"""
FAIL = """
x + turned; rows + reshard(x, P(None, "a")); x @ w
rows @ reshard(w, P(None, 'a')); x @ reshard(w, P('a')); xp.einsum('ij,kj->ik', x, x); columns.reshape(128); w.reshape(2, 8, 8)
x[xp.array([0, 2])]; xp.take(x, xp.array([0, 2]), axis=0);
xp.pad(x, ((0, 0), (2, 1))); xp.sort(x, 1); lax.top_k(x, 3); xp.diagonal(x); xp.diag(row, 1)
lax.with_sharding_constraint(x, P('b', 'a'))
lax.scan(lambda c, r: (c + r, c * 2), xp.zeros(16), x); auto_axes(lambda p, q: p @ q)(x, w); xp.roll(x, 1, 0)
lax.cond(True, lambda a: a, lambda a: reshard(a * 2, P(None, 'b')), x); lax.fori_loop(0, 3, lambda i, a: reshard(a, P(None, 'b')), x)
"""


#: what weft types and the peer refuses
MORE = {
    "x[:4]": "float32[4@a,16@b]",
    "x[:3]": "float32[3,16@b]",
    "x[0]": "float32[16@b]",
    "lax.dynamic_slice(x, (0, 0), (3, 16))": "float32[3,16@b]",
    "xp.cumsum(x, 1)": "float32[8@a,16@b]",
    "x.at[xp.array([0, 2])].set(1.)": "float32[8@a,16@b]",
    "x.at[0:4].set(1.)": "float32[8@a,16@b]",
    "xp.concatenate([x, rows])": "float32[16@a,16@b]",
}


def programs(table: str) -> list[str]:
    return [
        text.strip()
        for line in table.strip().splitlines()
        for text in line.split(";")
        if text.strip()
    ]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> dict:
    python = os.environ.get("WEFT_ORACLE_PYTHON")
    if not python:
        pytest.skip("WEFT_ORACLE_PYTHON is not set")
    folder, texts = tmp_path_factory.mktemp("peer"), [*programs(EQUAL), *programs(FAIL), *MORE]
    (folder / "in").write_text(json.dumps(texts))
    env = dict(
        os.environ,
        JAX_PLATFORMS="cpu",
        PYTHONPATH="",
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    subprocess.run(
        [python, pathlib.Path(__file__).with_name("peer.py"), folder / "in", folder / "out"],
        check=True,
        env=env,
        timeout=600,
    )
    return dict(zip(texts, json.loads((folder / "out").read_text())))


@pytest.fixture(scope="module")
def ours() -> dict:
    put = lambda shape, spec: weft.device_put(
        np.ones(shape, np.float32), NamedSharding(MESH, P(*spec))
    )
    with use_mesh(MESH):
        scope = scope_of(weft, wnp, put)
        return {
            text: types(text, scope, weft) for text in [*programs(EQUAL), *programs(FAIL), *MORE]
        }


@pytest.mark.parametrize("text", programs(EQUAL))
def test_the_table_has_types(text, ours):
    assert isinstance(ours[text], list), ours[text]


@pytest.mark.parametrize("text", programs(FAIL))
def test_the_table_of_errors(text, ours):
    assert isinstance(ours[text], str) and ours[text].startswith(
        ("ShardingTypeError", "ShardingAssertionError", "TypeError")
    ), ours[text]


@pytest.mark.parametrize("text", MORE)
def test_weft_types_more_than_the_peer(text, ours):
    assert ours[text] == [MORE[text]]


@pytest.mark.oracle
@pytest.mark.parametrize("text", programs(EQUAL))
def test_types_equal_the_peers(text, ours, theirs):
    assert ours[text] == theirs[text]


@pytest.mark.oracle
@pytest.mark.parametrize("text", [*programs(FAIL), *MORE])
def test_the_peer_refuses_it_too(text, theirs):
    assert isinstance(theirs[text], str), theirs[text]
