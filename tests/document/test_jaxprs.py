"""Jaxprs as text, side by side with the peer's. Run with `-m oracle` and WEFT_ORACLE_PYTHON set."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess

import pytest

import weft
import weft.random
from tests.document.jaxpr_programs import programs, scope_of, texts
from weft import numpy as wnp

#: programs that print another text than there, by reason
OTHERS = {
    "there it is a call (`jit[name=...]`), here its operations stand where it is called: a call costs tracing time": """
lambda x: jnp.where(x > 0, x, 0.5 * x) | v
lambda x, y: x // y | i, i
lambda x, y: x % y | i, i
lambda x: jnp.round(x) | v
lambda x: jnp.clip(x, 0, 1) | v
lambda x: jnp.var(x) | m
lambda x: jnp.std(x, axis=0) | m
lambda x: jnp.cumsum(x) | v
lambda x: jnp.linalg.norm(x) | v
lambda x: jnp.flip(x, 1) | m
lambda x: jnp.pad(x, 1) | v
lambda x, i: jnp.take(x, i, axis=0) | m, i
lambda x, i: jnp.take_along_axis(x, i, axis=1) | m, im
lambda x, i: lax.dynamic_index_in_dim(x, i, 0, keepdims=False) | m, 1
lambda x: jnp.tril(x) | m
lambda x: nn.one_hot(x, 4) | i
lambda x: jnp.linspace(0., 1., 5) * x | 1.0
lambda x: jnp.sort(x) | v
lambda x: jnp.argsort(x) | v
lambda x: jnp.median(x) | v
lambda x: nn.relu(x) | v
lambda x: nn.log_softmax(x) | m
lambda x: nn.silu(x) | v
lambda x: nn.softplus(x) | v
lambda x: nn.leaky_relu(x) | v
lambda x: nn.elu(x) | v
lambda x: nn.relu6(x) | v
jax.grad(lambda x: jnp.where(x > 0, x, 0.).sum()) | v
jax.grad(lambda x: nn.relu(x).sum()) | v
jax.vmap(lambda x: jnp.where(x > 0, x, 0.)) | m
lambda k: random.uniform(k, (3,)) | key
lambda k: random.normal(k, (2, 2)) | key
lambda k: random.bernoulli(k, 0.5, (3,)) | key
lambda k: random.uniform(k, (3,)) | raw
lambda k: random.randint(k, (3,), 0, 10) | key
lambda k: random.categorical(k, jnp.zeros(4)) | key
lambda k: random.permutation(k, 8) | key
lambda x: jnp.linalg.inv(x) | s
lambda x: jnp.linalg.cholesky(x) | s
lambda x: jnp.linalg.svd(x) | s
lambda x: jnp.linalg.eigh(x) | s
lambda x: jnp.linalg.qr(x) | s
lambda x: jnp.linalg.det(x) | s
lambda x, y: jnp.linalg.solve(x, y) | s, v
lambda x: jnp.fft.fft(x) | c
lambda x: jnp.fft.rfft(x) | v8
lambda x: jnp.nan_to_num(x) | v
lambda x: jnp.diag(x) | v
lambda x: jnp.trace(x) | s
lambda x: jnp.diff(x) | v
lambda x: jnp.roll(x, 1) | v
lambda x: jnp.allclose(x, x) | v
lambda x: jnp.searchsorted(x, 0.5) | v
lambda x: jnp.interp(x, x, x) | v
lambda x: jnp.polyval(x, 2.0) | v
lambda x: jnp.mod(x, 2.0) | v
lambda x: jnp.floor_divide(x, 2.0) | v
lambda x: jnp.hypot(x, x) | v
lambda x: jnp.sinc(x) | v
lambda x: jnp.unwrap(x) | v
lambda x: jnp.cross(x, x) | v
lambda x: jnp.kron(x, x) | v
lambda x: jnp.histogram(x, 3)[0] | v
lambda x: jnp.nonzero(x, size=2) | v
lambda x: jnp.cumprod(x) | v
lambda x: jnp.quantile(x, 0.5) | v
mlp | w, k4, m
""",
    "one operation there, several here: it is not an operation of weft": """
lambda x: jnp.stack([x, x]) | v
lambda x: jnp.tile(x, 2) | v
lambda x: jnp.split(x, 2) | v8
lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), 'VALID') | v8
lambda x: lax.reduce_window(x, 0., lax.add, (2,), (1,), 'SAME') | v8
""",
    "several operations there, one here: it is an operation of weft": """
lambda x: jnp.logaddexp(x, 1.0) | v
lambda x: lax.associative_scan(jnp.add, x) | v8
""",
    "weft computes it by other operations: fewer, or more accurate ones": """
lambda x: nn.logsumexp(x, axis=1) | m
lambda: jnp.eye(3) |
lambda x: nn.softmax(x) | m
lambda x: nn.gelu(x) | v
lambda x: jnp.select([x > 0], [x], 0.0) | v
lambda x: lax.reduce(x, 0., lax.add, (0,)) | v
attention | t, t, t
""",
    "the derivative is written otherwise: 1 - y ** 2 for tanh, no reshape for max, one sum for a repetition": """
jax.grad(lambda x: jnp.sum(jnp.tanh(x))) | v
jax.grad(lambda x: jnp.max(x)) | v
jax.grad(loss, argnums=(0, 1)) | w, k4, m
""",
    "tangents are strongly typed here": """
jax.grad(lambda x: cj(x)) | 1.0
jax.grad(lambda x: cv(x)) | 1.0
""",
    "known values are constants here: bases, positions, keys, arrays of rank 0": """
jax.jacfwd(lambda x: x ** 2) | v
jax.jacrev(lambda x: x ** 2) | v
jax.hessian(lambda x: jnp.sum(x ** 3)) | v
lambda x: x.at[0].add(1.0) | v
lambda x: x.at[0, 1].mul(3.0) | m
lambda: random.key(0) |
lambda x: x + jnp.float32(3.14159274) | v
""",
    "an index is converted elsewhere, or not wrapped where it is known": """
lambda x, i: x[i] | v, 1
lambda x, i: x[:, i] | m, jnp.int32(1)
lambda x, i: lax.dynamic_slice(x, (i,), (2,)) | v, 1
""",
    "residuals stand in another order": """
jax.grad(lambda x: lax.scan(lambda c, a: (c * a, c), 1.0, x)[0]) | v
""",
    "the backward pass of a checkpoint is not one equation": """
""",
    "a collective over a mapped dim is a reduction": """
jax.vmap(lambda x: lax.psum(x, 'i'), axis_name='i') | v
""",
    "callbacks hold other objects": """
lambda x: jax.debug.print('x = {}', x) or x | v
lambda x: jax.pure_callback(callback, jax.ShapeDtypeStruct((3,), jnp.float32), x) | v
""",
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> dict[str, str]:
    python = os.environ.get("WEFT_ORACLE_PYTHON")
    if not python:
        pytest.skip("WEFT_ORACLE_PYTHON is not set")
    out = tmp_path_factory.mktemp("peer") / "texts"
    env = dict(
        os.environ,
        JAX_PLATFORMS="cpu",
        PYTHONPATH="",
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    subprocess.run(
        [python, pathlib.Path(__file__).with_name("jaxpr_programs.py"), out],
        check=True,
        env=env,
        timeout=600,
    )
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def ours() -> dict[str, str]:
    return texts(scope_of(weft, wnp, weft.lax, weft.nn, weft.random, weft.P))


def plain(text: str) -> str:
    """Return a text of the peer with plain numbers in place of `np.int64(...)`."""
    return re.sub(r"np\.int64\((\d+)\)", r"\1", text)


def test_every_program_has_a_text(ours):
    failed = {
        line: text for line, text in ours.items() if not text.startswith(("{ lambda", "let "))
    }
    assert not failed, failed
    assert list(ours) == programs()


@pytest.mark.oracle
def test_programs_print_as_there(ours, theirs):
    different = [line for line in programs() if plain(theirs[line]) != ours[line]]
    listed = [line for lines in OTHERS.values() for line in lines.strip().splitlines()]
    assert sorted(different) == sorted(listed), "\n\n".join(
        f"{line}\n{theirs[line]}\n{ours[line]}" for line in sorted({*different} ^ {*listed})
    )
    assert len(ours) - len(listed) >= 160
