"""The steps of random programs: each adds a line to a function, and its value to the scope.

In:   a `Body`, which has the values in scope, with shape, dtype and exactness, and the mesh and
      dtypes of its program.
Laws: a step adds a correct line or, where no value in scope fits, another step's. No discontinuous
      function is applied to a rounded value.
Next: `programs` chooses the steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.fuzz.expressions import (
    BOOL_BINARY,
    BOOL_REDUCE,
    COMPARE,
    COMPLEX_BINARY,
    COMPLEX_UNARY,
    EXACT_ALONG,
    EXACT_REDUCE,
    FLOAT_ALONG,
    FLOAT_BINARY,
    FLOAT_EDGE,
    FLOAT_EXACT_BINARY,
    FLOAT_EXACT_UNARY,
    FLOAT_REDUCE,
    FLOAT_STEPS,
    FLOAT_UNARY,
    INT_ALONG,
    INT_BINARY,
    INT_REDUCE,
    INT_UNARY,
    PLACES,
    TESTS,
    TO_REAL,
)
from tests.fuzz.step_body import FLOATS, SIZES, Body, Value

# ---- steps: each adds a value, or nothing where no value in scope fits


def _unary(b: Body) -> None:
    x = b.pick()
    assert x is not None
    if x.kind == "b":
        b.like(f"~{x.name}", x)
    elif x.kind == "i":
        b.like(f"({b.one(INT_UNARY).format(x.name)}).astype(xp.{x.dtype})", x)
    elif x.kind == "c":
        b.like(b.one(COMPLEX_UNARY).format(x.name), x, exact=False)
    else:
        choice = b.r.random()
        if choice < 0.25:
            b.like(b.one(FLOAT_EXACT_UNARY).format(x.name), x)
        elif choice < 0.4 and x.exact:
            b.like(b.one(FLOAT_STEPS).format(x.name), x)
        elif choice < 0.55 and b.program.wild:
            b.like(b.one(FLOAT_EDGE).format(x.name), x, exact=False)
        else:
            b.like(b.one(FLOAT_UNARY).format(x.name), x, exact=False)


def _fits(s: tuple[int, ...], t: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(s[::-1], t[::-1]))


def _partner(b: Body, x: Value, test: Callable[[Value], object] = lambda y: True) -> Value:
    return (
        b.pick(
            lambda y: (
                y.dtype == x.dtype
                and _fits(x.shape, y.shape)
                and test(y)
                and np.prod(np.broadcast_shapes(x.shape, y.shape)) <= b.limit
            )
        )
        or x
    )


def _binary(b: Body) -> None:
    x = b.pick()
    assert x is not None
    y = _partner(b, x)
    shape, exact, varying = (
        np.broadcast_shapes(x.shape, y.shape),
        x.exact and y.exact,
        x.varying | y.varying,
    )
    if x.kind == "f" and b.r.random() < 0.3:
        b.add(b.one(FLOAT_EXACT_BINARY).format(x.name, y.name), shape, x.dtype, exact, varying)
    elif x.kind == "f" and len(x.shape) >= len(y.shape) and shape == x.shape:
        b.add(b.one(FLOAT_BINARY).format(x.name, y.name), shape, x.dtype, False, varying)
    elif x.kind == "f":
        b.add(b.one("{0} + {1}; {0} * {1}").format(x.name, y.name), shape, x.dtype, False, varying)
    elif x.kind == "c":
        b.add(b.one(COMPLEX_BINARY).format(x.name, y.name), shape, x.dtype, False, varying)
    else:
        text = b.one(BOOL_BINARY if x.kind == "b" else INT_BINARY).format(x.name, y.name)
        b.add(f"({text}).astype(xp.{x.dtype})", shape, x.dtype, True, varying)


def _mixed(b: Body) -> None:
    """Add an op on operands of two dtypes."""
    x = b.pick(lambda x: x.kind in "if")
    y = x and b.pick(lambda y: y.kind in "bif" and y.dtype != x.dtype and y.shape == x.shape)
    if x is None or y is None:
        return _cast(b)
    whole = x.kind == "i" and y.kind in "bi"
    text = b.one(
        "{0} + {1}; {0} * {1}; {1} - {0}" if y.kind != "b" else "{0} + {1}; {0} * {1}"
    ).format(x.name, y.name)
    if whole:
        b.add(f"({text}).astype(xp.{x.dtype})", x.shape, x.dtype, True, x.varying | y.varying)
    else:
        target = x.dtype if x.kind == "f" else y.dtype
        b.add(f"({text}).astype(xp.{target})", x.shape, target, False, x.varying | y.varying)


def _compare(b: Body) -> None:
    x = b.pick(lambda x: x.exact and x.kind in "if")
    if x is None:
        return _unary(b)
    if x.kind == "f" and b.r.random() < 0.4:
        b.like(b.one(TESTS).format(x.name), x, dtype="bool")
        return
    y = _partner(b, x, lambda y: y.exact)
    b.add(
        b.one(COMPARE).format(x.name, y.name),
        np.broadcast_shapes(x.shape, y.shape),
        "bool",
        True,
        x.varying | y.varying,
    )


def _where(b: Body) -> None:
    x = b.pick()
    assert x is not None
    y = _partner(b, x, lambda y: y.shape == x.shape)
    c = b.pick(
        lambda c: (
            c.kind == "b"
            and c.exact
            and _fits(c.shape, x.shape)
            and np.broadcast_shapes(c.shape, x.shape) == x.shape
        )
    )
    test = c.name if c else (f"xp.arange({x.shape[-1]}) % 2 == 0" if x.shape else "True")
    b.add(
        f"xp.where({test}, {x.name}, {y.name})",
        x.shape,
        x.dtype,
        x.exact and y.exact,
        x.varying | y.varying | (c.varying if c else frozenset()),
    )


def _cast(b: Body) -> None:
    x = b.pick(lambda x: x.kind != "c" or not b.program.wild)
    if x is None:
        return
    if x.kind == "c":
        b.like(
            b.one(TO_REAL).format(x.name),
            x,
            exact=False,
            dtype="float64" if x.dtype == "complex128" else "float32",
        )
        return
    targets = [
        t for t in b.program.dtypes if t != x.dtype and (x.exact or t in (*FLOATS, "float64"))
    ]
    if not targets:
        return
    target = b.r.choice(targets)
    small = {"float16": 1, "bfloat16": 1}.get(target, 3)
    rank = {"bool": 0, "float16": 1, "bfloat16": 1, "float32": 3, "float64": 5}.get(
        x.dtype, 2 if x.kind == "i" else 0
    )
    widening = x.kind == "b" or (
        x.kind == "f"
        and target in ("float32", "float64", "complex64", "complex128")
        and rank <= small
    )
    to_int = "int" in target or target == "bool"
    b.like(f"{x.name}.astype(xp.{target})", x, exact=x.exact and (widening or to_int), dtype=target)


def _bits(b: Body) -> None:
    """Add a bitcast of a float to bits, or back."""
    same = {
        "float32": "int32",
        "float16": "uint16",
        "bfloat16": "int16",
        "float64": "uint64",
        "int32": "uint32",
        "uint16": "int16",
        "int8": "uint8",
    }
    x = b.pick(lambda x: x.exact and x.dtype in same and not (x.kind == "f" and b.program.wild))
    if x is None:
        return _unary(b)
    b.like(f"lax.bitcast_convert_type({x.name}, xp.{same[x.dtype]})", x, dtype=same[x.dtype])


def _reduce(b: Body) -> None:
    x = b.pick(lambda x: x.shape and x.size)
    if x is None:
        return _unary(b)
    d = b.r.randrange(len(x.shape))
    keep = b.r.random() < 0.3
    shape = [n if k != d else 1 for k, n in enumerate(x.shape) if keep or k != d]
    end = ", keepdims=True)" if keep else ")"
    fill = lambda ways: (
        b.one(ways).format(x.name, d=b.r.choice((d, d - len(x.shape))), t=f"xp.{x.dtype}")[:-1]
        + end
    )
    if x.kind == "b":
        b.like(fill(BOOL_REDUCE), x, shape=shape)
    elif x.exact and x.kind in "if" and b.r.random() < 0.2:
        b.like(f"({fill(PLACES)}).astype(xp.int32)", x, shape=shape, dtype="int32")
    elif x.kind == "i":
        b.like(fill(INT_REDUCE), x, shape=shape)
    elif x.kind == "c":
        b.like(fill("xp.sum({0}, {d}); xp.mean({0}, {d})"), x, shape=shape, exact=False)
    elif b.r.random() < 0.3:
        b.like(fill(EXACT_REDUCE), x, shape=shape)
    else:
        b.like(fill(FLOAT_REDUCE), x, shape=shape, exact=False)


def _along(b: Body) -> None:
    x = b.pick(lambda x: x.shape and x.size and x.kind in "if")
    if x is None:
        return _unary(b)
    d = b.r.randrange(len(x.shape))
    fill = lambda ways: b.one(ways).format(x.name, d=d, t=f"xp.{x.dtype}")
    if x.kind == "i" and b.r.random() < 0.5:
        b.like(fill(INT_ALONG), x)
    elif x.kind == "i" or b.r.random() < 0.4:
        b.like(fill(EXACT_ALONG), x)
    else:
        b.like(fill(FLOAT_ALONG), x, exact=False)


def _order(b: Body) -> None:
    x = b.pick(lambda x: x.shape and x.size and x.exact and x.kind in "if")
    if x is None:
        return _along(b)
    d, n = len(x.shape) - 1, x.shape[-1]
    k = b.r.randint(1, n)
    shape = (*x.shape[:-1], k)
    ways = [
        (f"xp.argsort({x.name}, axis={d}).astype(xp.int32)", x.shape, "int32"),
        (f"lax.top_k({x.name}, {k})[0]", shape, x.dtype),
        (f"lax.top_k({x.name}, {k})[1]", shape, "int32"),
        (f"xp.take_along_axis({x.name}, xp.argsort({x.name}, axis={d}), {d})", x.shape, x.dtype),
        (f"xp.partition({x.name}, {k - 1}, axis={d})[..., {k - 1}]", x.shape[:-1], x.dtype),
        (
            f"xp.searchsorted(xp.sort(xp.ravel({x.name})), xp.ravel({x.name})).astype(xp.int32)",
            (x.size,),
            "int32",
        ),
    ]
    # the peer's top_k orders -0.0 before 0.0, and NaN before -inf where its sign is negative
    ways = [way for way in ways if not (b.program.wild and x.kind == "f" and "top_k" in way[0])]
    text, shape, dtype = b.r.choice(ways)
    b.like(text, x, shape=shape, dtype=dtype)


def _matmul(b: Body) -> None:
    x = b.pick(lambda x: len(x.shape) == 2 and x.kind in "ifc" and x.size)
    if x is None:
        return _reshape(b)
    y = b.pick(lambda y: len(y.shape) == 2 and y.dtype == x.dtype and y.size) or x
    (i, j), (k, m) = x.shape, y.shape
    ways = [
        ("xp.einsum('ij,kl->jl', {0}, {1})", True, (j, m)),
        ("xp.outer({0}[0], {1}[:, 0])", True, (j, k)),
        ("xp.einsum('ij,kj->ik', {0}, {1})", j == m, (i, k)),
        ("{0}.T @ {1}", i == k, (j, m)),
        ("{0} @ {1}", j == k, (i, m)),
        ("xp.einsum('ij,jk->k', {0}, {1})", j == k, (m,)),
        ("xp.tensordot({0}, {1}, 2)", x.shape == y.shape, ()),
        ("xp.einsum('ij,ij->ij', {0}, {1})", x.shape == y.shape, x.shape),
        ("{0} @ {1}[0]", j == m, (i,)),
    ]
    text, _, shape = b.r.choice([w for w in ways if w[1]])
    if np.prod(shape) > b.limit:
        return
    text = text.format(x.name, y.name)
    b.add(
        f"({text}).astype(xp.{x.dtype})" if x.kind == "i" else f"0.25 * ({text})",
        shape,
        x.dtype,
        x.kind == "i",
        x.varying | y.varying,
    )


def _reshape(b: Body) -> None:
    x = b.pick()
    assert x is not None
    n, s, name = x.size, x.shape, x.name
    shapes = [
        t
        for t in [
            (n,),
            (n, 1),
            (2, n // 2),
            (n // 2, 2),
            (4, n // 4),
            (n // 3, 3),
            (2, 2, n // 4),
            (n // 8, 2, 4),
        ]
        if np.prod(t) == n
    ]
    ways = [(f"{name}.reshape({t})", t) for t in shapes if n]
    if len(s) > 1:
        ways += [
            (f"{name}.T", s[::-1]),
            (f"xp.swapaxes({name}, 0, -1)", (s[-1], *s[1:-1], s[0])),
            (f"xp.moveaxis({name}, 0, -1)", (*s[1:], s[0])),
        ]
    if len(s) < 3:
        ways += [
            (f"{name}[None]", (1, *s)),
            (f"xp.broadcast_to({name}, {(3, *s)})", (3, *s)),
            (f"xp.stack([{name}, {name}], -1)", (*s, 2)),
        ]
    if s:
        ways += [
            (f"xp.tile({name}, 2)", (*s[:-1], 2 * s[-1])),
            (f"xp.repeat({name}, 2, 0)", (2 * s[0], *s[1:])),
            (f"{name}[..., None]", (*s, 1)),
        ]
    ways = [w for w in ways if np.prod(w[1]) <= b.limit and len(w[1]) < 5]
    if ways:
        text, shape = b.r.choice(ways)
        b.like(text, x, shape=shape)


def _index(b: Body) -> None:
    x = b.pick(lambda x: x.shape and x.shape[0] > 1 and x.size)
    if x is None:
        return _reshape(b)
    name, s, n, rest = x.name, x.shape, x.shape[0], x.shape[1:]
    y = b.pick(lambda y: y.shape == s and y.dtype == x.dtype) or x
    i = b.pick(lambda i: i.kind == "i" and i.exact and 0 < len(i.shape) < 3 and i.size <= 64)
    k, row = b.r.randrange(n), (n,) + (1,) * len(rest)
    exact = [
        (f"{name}[{b.r.randrange(-n, n)}]", rest),
        (f"{name}[1:]", (n - 1, *rest)),
        (f"{name}[::-1]", s),
        (f"{name}[::2]", ((n + 1) // 2, *rest)),
        (f"{name}[xp.array([0, {n - 1}, 0])]", (3, *rest)),
        (f"{name}.at[{k}].set({y.name}[0])", s),
        (f"{name}.at[{k}:].set({y.name}[:{n - k}])", s),
        (f"{name}.at[xp.array([{k}, 0])].max({y.name}[:2])", s),
        (f"xp.take({name}, xp.array([{n - 1}, 0, {n + 2}]), 0, mode='clip')", (3, *rest)),
        (f"xp.concatenate([{name}, {y.name}])", (2 * n, *rest)),
        (f"xp.concatenate([{name}[{k}:], {name}[:{k}]])", s),
        (f"xp.pad({name}, [(1, 2)] + [(0, 0)] * {len(rest)})", (n + 3, *rest)),
        (f"xp.pad({name}, [(1, 1)] + [(0, 0)] * {len(rest)}, mode='edge')", (n + 2, *rest)),
        (f"lax.dynamic_slice_in_dim({name}, {k}, {max(n // 2, 1)}, 0)", (max(n // 2, 1), *rest)),
        (f"lax.dynamic_update_slice_in_dim({name}, {y.name}[:1], {k}, 0)", s),
        (f"{name}[{k}:{k + 1}]", (1, *rest)),
        (f"xp.where(xp.arange({n}).reshape({row}) % 2 == 0, {name}, {y.name})", s),
        (f"xp.delete({name}, {k}, 0)", (n - 1, *rest)),
        (f"xp.insert({name}, {k}, {y.name}[0], 0)", (n + 1, *rest)),
        (f"xp.split({name}, [{k}])[1]", (n - k, *rest)),
    ]
    rounded = [
        (f"{name}.at[{k}].add({y.name}[0])", s),
        (f"{name}.at[xp.array([0, 0, {k}])].add({y.name}[:1])", s),
        (f"{name}.at[1:].add({name}[:-1])", s),
        (f"xp.diff({name}, axis=0)", (n - 1, *rest)),
        (f"{name}.at[{k}].multiply(2)", s),
        (f"api.ops.segment_sum({name}, xp.arange({n}) % 3, 4)", (4, *rest)),
        (f"{name}[1:] - {name}[:-1]", (n - 1, *rest)),
    ]
    varying = x.varying | y.varying
    if i is not None:
        exact += [
            (f"{name}[{i.name}]", (*i.shape, *rest)),
            (f"xp.take({name}, {i.name}, 0, mode='clip')", (*i.shape, *rest)),
            (f"{name}.at[{i.name}].min({name}[0])", s),
        ]
        rounded += [(f"{name}.at[{i.name}].add({name}[{k}])", s)]
        varying |= i.varying
    if x.kind == "b":
        exact = [w for w in exact if "max(" not in w[0] and "min(" not in w[0]]
        rounded = []
    chosen = b.r.random() < 0.75 or not rounded
    ways = [w for w in (exact if chosen else rounded) if np.prod(w[1]) <= b.limit and len(w[1]) < 5]
    if not ways:
        return
    text, shape = b.r.choice(ways)
    if not chosen and x.kind == "i":
        text = f"({text}).astype(xp.{x.dtype})"
    b.add(text, shape, x.dtype, x.exact and y.exact and (chosen or x.kind == "i"), varying)


def _random(b: Body) -> None:
    s = tuple(b.r.choice(SIZES) for _ in range(b.r.choice((1, 2))))
    key = f"api.random.key({b.r.randrange(99)})"
    text, dtype, exact = b.r.choice(
        [
            (f"api.random.uniform({key}, {s})", "float", True),
            (f"api.random.normal({key}, {s})", "float", False),
            (f"api.random.randint({key}, {s}, 0, 50, xp.int32)", "int32", True),
            (f"api.random.bits({key}, {s}, xp.uint32)", "uint32", True),
            (f"api.random.bernoulli({key}, 0.3, {s})", "bool", True),
            (f"api.random.permutation({key}, {s[0]}).astype(xp.int32)", "int32", True),
        ]
    )
    if "permutation" in text:
        s = s[:1]
    if dtype == "float":
        text, dtype = text[:-1] + ", xp.float32)", "float32"
    b.add(text, s, dtype, exact)


def _iota(b: Body) -> None:
    x = b.pick(lambda x: x.shape and x.kind in "if")
    if x is None:
        return
    d = b.r.randrange(len(x.shape))
    text = f"lax.broadcasted_iota(xp.{x.dtype}, {x.shape}, {d})"
    b.like(f"{x.name} + {text}" if x.kind == "i" else f"{x.name} * {text}", x, exact=x.kind == "i")


def _control(b: Body) -> None:
    """Add a loop, a condition, a vmap or a jit around a few operations."""
    x = b.pick(lambda x: x.size and (x.kind == "i" or x.kind == "f"))
    if x is None:
        return
    t, name = f"xp.{x.dtype}", x.name
    step = (
        f"({b.one(INT_UNARY).format('c')}).astype({t})"
        if x.kind == "i"
        else b.one(FLOAT_UNARY).format("c")
    )
    exact = x.kind == "i"
    ways = [
        f"lax.fori_loop(0, {b.r.randint(0, 4)}, lambda i, c: {step}, {name})",
        f"lax.scan(lambda c, _: ({step}, None), {name}, None, length={b.r.randint(0, 3)}, unroll={b.r.choice((1, 2))})[0]",
        f"lax.while_loop(lambda s: s[0] < {b.r.randint(0, 4)}, lambda s: (s[0] + 1, (lambda c: {step})(s[1])), (0, {name}))[1]",
        f"api.jit(lambda c: {step})({name})",
        f"api.checkpoint(lambda c: {step})({name})",
        f"lax.cond(xp.asarray({b.r.choice((True, False))}), lambda c: {step}, lambda c: c, {name})",
        f"lax.switch(xp.asarray({b.r.randint(-1, 3)}), [lambda c: c, lambda c: {step}, lambda c: -c], {name})",
    ]
    if x.exact and x.shape and x.kind == "i":
        ways.append(f"lax.cond(xp.max({name}) > 3, lambda c: {step}, lambda c: c, {name})")
    if x.shape and not b.program.explicit:
        ways += [
            f"api.vmap(lambda c: {step})({name})",
            f"lax.map(lambda c: {step}, {name})",
            f"lax.scan(lambda s, c: ({'s' if x.kind == 'f' else 's ^ c'}, ({step}) + s), {name}[0], {name})[1]",
        ]
    b.like(b.r.choice(ways), x, exact=exact)


def _linalg(b: Body) -> None:
    x = b.pick(
        lambda x: (
            x.dtype in ("float32", "float64")
            and len(x.shape) >= 2
            and x.size
            and max(x.shape) <= 16
        )
    )
    if x is None or b.program.wild:
        return _along(b)
    n, s = x.shape[-1], x.shape
    square = f"({x.name}.swapaxes(-1, -2) @ {x.name} * {1 / max(1, s[-2])} + 2 * xp.eye({n}, dtype=xp.{x.dtype}))"
    shape = (*s[:-2], n, n)
    ways = [
        (f"xp.linalg.cholesky({square})", shape),
        (f"xp.linalg.inv({square})", shape),
        (f"xp.linalg.det({square}) * {0.3**n}", s[:-2]),
        (f"xp.linalg.solve({square}, xp.ones(({n}, 2), xp.{x.dtype}))", (*s[:-2], n, 2))
        if len(s) == 2
        else (f"xp.linalg.inv({square})", shape),
        (f"xp.linalg.eigvalsh({square})", (*s[:-2], n)),
    ]
    text, shape = b.r.choice([w for w in ways if np.prod(w[1]) <= b.limit])
    b.like(text, x, shape=shape, exact=False)


def _convolve(b: Body) -> None:
    x = b.pick(lambda x: x.kind == "f" and len(x.shape) == 3 and x.size)
    if x is None:
        return _matmul(b)
    c = x.shape[1]
    stride, padding = b.r.choice((1, 2)), b.r.choice(("SAME", "SAME_LOWER"))
    text = f"lax.conv_general_dilated({x.name}, xp.ones((3, {c}, 2), xp.{x.dtype}) * 0.25, ({stride},), {padding!r})"
    b.like(text, x, shape=(x.shape[0], 3, -(-x.shape[2] // stride)), exact=False)


def _window(b: Body) -> None:
    x = b.pick(lambda x: x.kind in "if" and x.shape and x.shape[-1] > 2 and x.size)
    if x is None:
        return _index(b)
    ones = (1,) * (len(x.shape) - 1)
    least = (
        f"-xp.inf if xp.issubdtype({x.name}.dtype, xp.floating) else xp.iinfo({x.name}.dtype).min"
    )
    text, exact = b.r.choice(
        [
            (
                f"lax.reduce_window({x.name}, xp.asarray({least}, {x.name}.dtype), lax.max, {(*ones, 3)}, {(*ones, 1)}, 'SAME')",
                x.exact,
            ),
            (
                f"lax.reduce_window({x.name}, xp.asarray(0, {x.name}.dtype), lax.add, {(*ones, 2)}, {(*ones, 1)}, 'SAME')",
                x.kind == "i",
            ),
        ]
    )
    b.like(text, x, exact=exact)


def _fft(b: Body) -> None:
    x = b.pick(
        lambda x: (
            x.dtype in ("float32", "complex64", "float64", "complex128") and x.shape and x.size
        )
    )
    if x is None or b.program.wild:
        return _along(b)
    wide = "complex128" if x.dtype in ("float64", "complex128") else "complex64"
    b.like(
        f"xp.fft.fft({x.name}, axis={b.r.randrange(len(x.shape))}, norm='ortho')",
        x,
        dtype=wide,
        exact=False,
    )


def _lay(b: Body) -> None:
    x = b.pick(lambda x: x.shape)
    if x is not None:
        b.like(f"lay({x.name}, {', '.join(map(repr, b.program.spec(x.shape, uneven=True)))})", x)


# ---- shard_map


def _manual(b: Body) -> None:
    """Add a shard_map: a function of local blocks with collectives."""
    maker, r = b.program, b.r
    x = b.pick(
        lambda x: (
            x.shape
            and x.size
            and any(
                n % maker.mesh[a] == 0 and maker.mesh[a] > 1 for n in x.shape for a in maker.mesh
            )
        )
    )
    if x is None or any("shard_map" in line for line in b.lines):
        return _lay(b)
    taken = [x]
    other = b.pick(lambda y: y.size and y is not x and y.dtype == x.dtype)
    if other is not None and r.random() < 0.5:
        taken.append(other)
    manual = set(maker.mesh)
    if not maker.explicit and len(manual) > 1 and r.random() < 0.25:
        manual = {r.choice(sorted(manual))}
    specs = [maker.spec(v.shape, axes=sorted(manual), chance=0.8) for v in taken]
    blocks = [
        Value(
            f"b{i}",
            tuple(n // maker.parts(e) for n, e in zip(v.shape, spec)),
            v.dtype,
            v.exact,
            frozenset(a for e in spec for a in maker.axes(e)),
        )
        for i, (v, spec) in enumerate(zip(taken, specs))
    ]
    inner = Body(r, blocks, maker, b.limit, "w")
    for _ in range(r.randint(1, 4)):
        (
            _collective
            if r.random() < 0.6
            else r.choice((_unary, _binary, _reduce, _along, _reshape))
        )(inner)
    out = inner.values[-1]
    free = list(out.varying)
    r.shuffle(free)
    if not out.shape and free:
        inner.add(f"{out.name}[None]", (1,), out.dtype, out.exact, out.varying)
        out = inner.values[-1]
    spec: list[tuple[str, ...]] = [() for _ in out.shape]
    for a in free:
        at = r.randrange(len(out.shape))
        spec[at] += (a,)
    shape = tuple(n * int(np.prod([maker.mesh[a] for a in e])) for n, e in zip(out.shape, spec))
    if np.prod(shape) > 4 * b.limit:
        return
    name = f"local{len(b.lines)}"
    show = lambda entries: (
        f"P({', '.join(repr(e[0] if len(e) == 1 else e or None) if isinstance(e, tuple) else repr(e) for e in entries)})"
    )
    body = "".join(f"        {line}\n" for line in inner.lines)
    b.lines.append(
        f"def {name}({', '.join(v.name for v in blocks)}):\n{body}        return {out.name}"
    )
    names = (
        ""
        if manual == set(maker.mesh)
        else f", axis_names={sorted(manual)!r}".replace("[", "{").replace("]", "}")
    )
    given = [
        f"lay({v.name}, {', '.join(map(repr, s))})" if maker.explicit and v.shape else v.name
        for v, s in zip(taken, specs)
    ]
    layouts = "".join(f"{show(s)}, " for s in specs)
    b.add(
        f"api.shard_map({name}, mesh=mesh, in_specs=({layouts}), out_specs={show(spec)}{names})({', '.join(given)})",
        shape,
        out.dtype,
        out.exact,
    )


def _collective(b: Body) -> None:
    mesh = b.program.mesh
    x = b.pick(lambda x: x.varying and x.kind in "if")
    if x is None:
        return _unary(b)
    a = b.r.choice(sorted(x.varying))
    n = mesh[a]
    less = x.varying - {a}
    whole = x.exact and x.kind == "i"
    perm = [(i, (i + 1) % n) for i in range(n)][: b.r.choice((n, n, max(1, n - 1)))]
    ways: list[tuple[str, tuple[int, ...], bool, frozenset[str]]] = [
        (f"lax.psum({x.name}, {a!r})", x.shape, whole, less),
        (f"lax.pmax({x.name}, {a!r})", x.shape, x.exact, less),
        (f"lax.pmin({x.name}, {a!r})", x.shape, x.exact, less),
        (f"lax.ppermute({x.name}, {a!r}, {perm})", x.shape, x.exact, x.varying),
        (f"{x.name} + lax.axis_index({a!r}).astype({x.name}.dtype)", x.shape, whole, x.varying),
        (f"lax.all_gather({x.name}, {a!r})", (n, *x.shape), x.exact, x.varying),
    ]
    if x.kind == "f":
        ways.append((f"lax.pmean({x.name}, {a!r})", x.shape, False, less))
    if len(x.varying) > 1:
        ways.append(
            (f"lax.psum({x.name}, {tuple(sorted(x.varying))!r})", x.shape, whole, frozenset())
        )
    for d, size in enumerate(x.shape):
        grown = lambda d, m: tuple(m if k == d else s for k, s in enumerate(x.shape))
        ways.append(
            (
                f"lax.all_gather({x.name}, {a!r}, axis={d}, tiled=True)",
                grown(d, size * n),
                x.exact,
                x.varying,
            )
        )
        if size % n == 0:
            ways.append(
                (
                    f"lax.psum_scatter({x.name}, {a!r}, scatter_dimension={d}, tiled=True)",
                    grown(d, size // n),
                    whole,
                    x.varying,
                )
            )
            ways.append(
                (
                    f"lax.all_to_all({x.name}, {a!r}, {d}, {d}, tiled=True)",
                    x.shape,
                    x.exact,
                    x.varying,
                )
            )
            e = b.r.randrange(len(x.shape))
            if e != d:
                shape = list(x.shape)
                shape[d] //= n
                shape[e] *= n
                ways.append(
                    (
                        f"lax.all_to_all({x.name}, {a!r}, {d}, {e}, tiled=True)",
                        tuple(shape),
                        x.exact,
                        x.varying,
                    )
                )
    text, shape, exact, varying = b.r.choice([w for w in ways if np.prod(w[1]) <= b.limit])
    b.add(text, shape, x.dtype, exact, varying)


STEPS = [
    (_unary, 4),
    (_binary, 4),
    (_mixed, 1),
    (_compare, 1),
    (_where, 2),
    (_cast, 2),
    (_bits, 1),
    (_reduce, 3),
    (_along, 2),
    (_order, 1),
    (_matmul, 3),
    (_reshape, 3),
    (_index, 5),
    (_random, 1),
    (_iota, 1),
    (_control, 2),
    (_linalg, 1),
    (_convolve, 1),
    (_window, 1),
    (_fft, 1),
    (_lay, 3),
    (_manual, 3),
]
#: steps whose result layout is not always determined by the operands' layouts: under explicit axes
#: they get unsharded operands
FREE = (_unary, _binary, _mixed, _where, _compare, _cast, _lay, _manual, _iota, _random, _bits)
