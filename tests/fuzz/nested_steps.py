"""Steps of random programs that contain functions, and ops in all their forms.

Nested control flow with closures, custom rules inside scan inside shard_map inside vmap, checkpoint
policies, donation in loops, callbacks, refs, sparse matrices, Pallas kernels with odd blocks,
export round trips; dot_general and convolutions with any dimension numbers, negative padding, ties.

In:   a `Body`, as in `steps`.
Laws: as in `steps`. Inner functions use the values in scope as closures.
Next: `programs` chooses among these steps and the steps of `steps`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.fuzz.expressions import FLOAT_UNARY, INT_UNARY
from tests.fuzz.step_body import Body, Value

POLICIES = (
    "everything_saveable",
    "nothing_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "save_only_these_names('kept')",
    "save_anything_except_these_names('kept')",
)
#: calls that have no derivative of one mode, or of both
ONLY_FORWARD = ("while_loop", "pallas_call")
ONLY_REVERSE = ("custom_vjp", "export.")
ONLY_PLAIN = ("pure_callback", "new_ref")


def _is_number(x: Value) -> bool:
    return bool(x.size) and x.kind in "if"


def _step_of(b: Body, x: Value) -> Callable[[str], str]:
    """Return an op that keeps shape and dtype, as a function of the operand's text."""
    if x.kind == "i":
        form = b.one(INT_UNARY)
        return lambda c: f"({form.format(c)}).astype(xp.{x.dtype})"
    form = b.one(FLOAT_UNARY)
    return lambda c: f"near({form.format(c)})"


def _with_closure(b: Body, x: Value) -> Callable[[str], str]:
    """Return an op like `_step_of` that also reads another value of the scope.

    Under explicit axes that is `x` itself: another value may have another layout, and a carry or a branch keeps one.
    """
    y = (
        b.pick(
            lambda y: (
                y.shape == x.shape and y.dtype == x.dtype and (y is x or not b.program.explicit)
            )
        )
        or x
    )
    step = _step_of(b, x)
    return lambda c: (
        f"({step(c)} ^ {y.name})" if x.kind == "i" else f"near(0.5 * ({step(c)} + {y.name}))"
    )


def _nest(b: Body, x: Value, depth: int, operand: str) -> str:
    """Return an expression of control flow around control flow, at most `depth` deep, that keeps shape and dtype."""
    if depth == 0:
        return (_with_closure(b, x) if b.r.random() < 0.5 else _step_of(b, x))(operand)
    c, i = f"c{depth}", f"i{depth}"
    body = _nest(b, x, depth - 1, c)
    other = _with_closure(b, x)(c)
    ways = [
        f"lax.fori_loop(0, {b.r.randint(0, 3)}, lambda {i}, {c}: {body}, {operand})",
        f"lax.fori_loop(0, 3, lambda {i}, {c}: lax.cond({i} % 2 == 0, lambda {c}: {body}, lambda {c}: {other}, {c}), {operand})",
        f"lax.scan(lambda {c}, {i}: ({body}, {i}), {operand}, xp.arange({b.r.randint(0, 3)}))[0]",
        f"lax.scan(lambda {c}, {i}: (lax.switch({i}, [lambda {c}: {body}, lambda {c}: {other}], {c}), None), {operand}, xp.arange(3))[0]",
        f"lax.while_loop(lambda s: s[0] < {b.r.randint(0, 3)}, lambda s: (s[0] + 1, (lambda {c}: {body})(s[1])), (0, {operand}))[1]",
        f"lax.cond(xp.asarray({b.r.choice((True, False))}), lambda {c}: {body}, lambda {c}: {other}, {operand})",
        f"api.jit(lambda {c}: {body})({operand})",
        f"api.checkpoint(lambda {c}: {body})({operand})",
    ]
    return b.r.choice(ways)


def _nested(b: Body) -> None:
    x = b.pick(_is_number)
    if x is not None:
        b.like(_nest(b, x, b.r.randint(2, 3), x.name), x, exact=x.kind == "i")


def _custom_rule(b: Body) -> None:
    """Add a custom rule inside scan, inside shard_map where a dim can be split, inside vmap."""
    x = b.pick(lambda x: x.kind == "f" and x.size and x.shape)
    if x is None:
        return
    name, step = f"ruled{len(b.lines)}", _step_of(b, x)
    head = f"def {name}(c):\n        return {step('c')}"
    if b.r.random() < 0.5:
        b.lines.append(
            f"@api.custom_jvp\n    {head}\n"
            f"    @{name}.defjvp\n"
            f"    def {name}_jvp(primals, tangents):\n"
            f"        return {name}(*primals), near(0.5 * tangents[0] * xp.cos(primals[0]))"
        )
    else:
        b.lines.append(
            f"@api.custom_vjp\n    {head}\n    {name}.defvjp(lambda c: ({name}(c), c), lambda c, g: (near(0.5 * g * xp.cos(c)),))"
        )
    program = b.program
    inner = f"(lambda c: lax.scan(lambda c, _: ({name}(c), None), c, None, length={b.r.randint(1, 3)})[0])"
    if not program.explicit and "shard_map" not in "".join(b.lines) and len(x.shape) > 1:
        spec = program.spec(x.shape[1:], chance=0.8)
        entries = f"P({', '.join(map(repr, spec))})"
        inner = f"api.shard_map({inner}, mesh=mesh, in_specs=({entries},), out_specs={entries})"
    if not program.explicit:
        inner = f"api.vmap({inner})"
    b.like(f"{inner}({x.name})", x, exact=False)


def _policy(b: Body) -> None:
    x = b.pick(lambda x: x.kind == "f" and len(x.shape) == 2 and x.size)
    if x is None:
        return _nested(b)
    first, last = _step_of(b, x), _with_closure(b, x)
    product = f"near(0.25 * ({first('c')} @ {first('c')}.T)) @ c"
    named = f"checkpoint_name(near(0.25 * ({product})), 'kept')"
    body = f"lambda c: {last(named)}"
    b.like(
        f"api.checkpoint({body}, policy=api.checkpoint_policies.{b.r.choice(POLICIES)})({x.name})",
        x,
        exact=False,
    )


def _dot_general(b: Body) -> None:
    """Add a product with batch and contracted dims in any position."""
    x = b.pick(lambda x: 1 <= len(x.shape) <= 4 and x.kind in "ifc" and x.size)
    if x is None:
        return _nested(b)
    y = b.pick(lambda y: 1 <= len(y.shape) <= 4 and y.dtype == x.dtype and y.size) or x
    pairs = [(i, j) for i, n in enumerate(x.shape) for j, m in enumerate(y.shape) if n == m]
    b.r.shuffle(pairs)
    contracted: list[tuple[int, int]] = []
    batch: list[tuple[int, int]] = []
    for pair in pairs:
        if all(pair[side] not in [p[side] for p in (*contracted, *batch)] for side in (0, 1)):
            b.r.choice((contracted, batch, [])).append(pair)
    sides = [[[p[side] for p in found] for side in (0, 1)] for found in (contracted, batch)]
    free = [
        [n for k, n in enumerate(v.shape) if k not in sides[0][side] + sides[1][side]]
        for side, v in enumerate((x, y))
    ]
    shape = (*(x.shape[i] for i in sides[1][0]), *free[0], *free[1])
    if np.prod(shape) > b.limit or len(shape) > 5:
        return
    text = f"lax.dot_general({x.name}, {y.name}, (({sides[0][0]}, {sides[0][1]}), ({sides[1][0]}, {sides[1][1]})))"
    text = f"({text}).astype(xp.{x.dtype})" if x.kind == "i" else f"0.25 * ({text})"
    b.add(text, shape, x.dtype, x.kind == "i", x.varying | y.varying)


def _permuted(b: Body, letters: str) -> str:
    return "".join(b.r.sample(letters, len(letters)))


def _conv_general(b: Body) -> None:
    """Add a convolution with any dimension numbers, negative padding, dilation and groups."""
    x = b.pick(lambda x: x.kind == "f" and len(x.shape) in (3, 4) and x.size)
    if x is None:
        return _dot_general(b)
    r, rank = b.r, len(x.shape) - 2
    spatial = "HW"[:rank]
    lhs, rhs, out = (
        _permuted(b, f"NC{spatial}"),
        _permuted(b, f"OI{spatial}"),
        _permuted(b, f"NC{spatial}"),
    )
    size = dict(zip(lhs, x.shape))
    feature_groups = r.choice([g for g in (1, 2, 3, 4) if size["C"] % g == 0])
    batch_groups = (
        r.choice([g for g in (1, 1, 2) if size["N"] % g == 0]) if feature_groups == 1 else 1
    )
    channels = 2 * feature_groups * batch_groups
    kernel = {
        "O": channels,
        "I": size["C"] // feature_groups,
        **{a: r.choice((1, 2, 3)) for a in spatial},
    }
    strides = [r.choice((1, 1, 2)) for _ in spatial]
    dilations = [[r.choice((1, 1, 2)) for _ in spatial] for _ in range(2)]
    padding = [(r.randint(-1, 2), r.randint(-1, 2)) for _ in spatial]
    sizes = {"N": size["N"] // batch_groups, "C": channels}
    for k, a in enumerate(spatial):
        grown = (size[a] - 1) * dilations[0][k] + 1 + sum(padding[k])
        if grown < 0:
            return
        sizes[a] = max(0, (grown - (kernel[a] - 1) * dilations[1][k] - 1) // strides[k] + 1)
    shape = tuple(sizes[a] for a in out)
    if np.prod(shape) > b.limit:
        return
    window = tuple(kernel[a] for a in rhs)
    weights = (
        f"xp.cos(xp.arange({int(np.prod(window))}.)).reshape({window}).astype(xp.{x.dtype}) * 0.25"
    )
    b.like(
        f"lax.conv_general_dilated({x.name}, near({weights}), {strides}, {padding}, lhs_dilation={dilations[0]}, "
        f"rhs_dilation={dilations[1]}, dimension_numbers={(lhs, rhs, out)}, feature_group_count={feature_groups}, "
        f"batch_group_count={batch_groups})",
        x,
        shape=shape,
        exact=False,
    )


def _pad(b: Body) -> None:
    """Add padding around and between elements; dims may become empty."""
    x = b.pick(lambda x: x.shape and x.kind in "ifcb")
    if x is None:
        return
    config, shape = [], []
    for n in x.shape:
        low, high, between = b.r.randint(-2, 2), b.r.randint(-2, 2), b.r.choice((0, 0, 1))
        grown = n + low + high + max(0, n - 1) * between
        if grown < 0:
            low, high, between, grown = 0, 0, 0, n
        config.append((low, high, between))
        shape.append(grown)
    if np.prod(shape) <= b.limit:
        b.like(
            f"lax.pad({x.name}, xp.asarray({b.r.choice((0, 1))}, {x.name}.dtype), {config})",
            x,
            shape=shape,
        )


def _ties(b: Body) -> None:
    """Add sorts and maxima of equal values."""
    x = b.pick(lambda x: x.shape and x.size and x.exact and x.kind in "if")
    if x is None:
        return _pad(b)
    d, r = b.r.randrange(len(x.shape)), b.r
    name = x.name
    less = tuple(m for k, m in enumerate(x.shape) if k != d)
    twice = f"xp.concatenate([{name}, {name}], {d})"
    few = f"({name} > 0)" if r.random() < 0.5 or x.kind == "f" else f"({name} % 2)"
    k = r.randint(1, 2 * x.shape[-1])
    ways = [
        (f"xp.max({twice}, {d})", less, x.dtype),
        (f"xp.min({twice}, {d})", less, x.dtype),
        (f"xp.maximum({name}, {name})", x.shape, x.dtype),
        (
            f"xp.sort({twice}, {d})",
            tuple(2 * m if k == d else m for k, m in enumerate(x.shape)),
            x.dtype,
        ),
        (f"xp.argmax({few}, {d}).astype(xp.int32)", less, "int32"),
        (f"xp.argsort({few}, axis={d}, stable=True).astype(xp.int32)", x.shape, "int32"),
        (
            f"lax.sort(({few}.astype(xp.int8), {name}), dimension={d}, num_keys=1)[1]",
            x.shape,
            x.dtype,
        ),
        (f"lax.top_k(xp.concatenate([{name}, {name}], -1), {k})[1]", (*x.shape[:-1], k), "int32"),
        (f"lax.cummax({few}.astype(xp.int32), {d})", x.shape, "int32"),
        (
            f"api.ops.segment_max({name}, (xp.arange({x.shape[0]}) // 2), {x.shape[0]})",
            x.shape,
            x.dtype,
        ),
    ]
    if x.kind == "f":
        ways = [
            way
            for way in ways
            if "segment" not in way[0] and not (b.program.wild and "top_k" in way[0])
        ]
    text, shape, dtype = r.choice(ways)
    b.like(text, x, shape=shape, dtype=dtype)


def _donation(b: Body) -> None:
    """Add a Python loop whose step donates its carry."""
    x = b.pick(_is_number)
    if x is None or b.prefix != "v":
        return
    k = len(b.lines)
    b.lines.append(
        f"given{k} = api.jit(lambda c, other: {_with_closure(b, x)('c')} + 0 * other, donate_argnums=0)\n"
        f"    d{k} = xp.array({x.name}, copy=True)\n"
        f"    for _ in range({b.r.randint(1, 3)}):\n"
        f"        d{k} = given{k}(d{k}, {x.name})"
    )
    b.like(f"d{k}", x, exact=x.kind == "i" and x.exact)


def _callback(b: Body) -> None:
    x = b.pick(lambda x: x.kind in "if" and x.size)
    if x is None or b.program.explicit:
        return
    body = b.r.choice(
        (
            "np.asarray(c)[()]",
            "-np.asarray(c)",
            "np.sort(np.asarray(c) + 0, axis=None).reshape(np.shape(c))",
        )
    )
    if not x.exact and "sort" in body:
        body = "-np.asarray(c)"
    method = (
        b.r.choice(("sequential", "expand_dims", "broadcast_all"))
        if "sort" not in body
        else "sequential"
    )
    b.like(
        f"api.pure_callback(lambda c: np.asarray({body}, np.asarray(c).dtype), "
        f"api.ShapeDtypeStruct({x.shape}, xp.{x.dtype}), {x.name}, vmap_method={method!r})",
        x,
    )


def _ref(b: Body) -> None:
    """Add writes to and reads of a mutable array."""
    x = b.pick(lambda x: x.kind in "if" and x.size and x.shape)
    if x is None or b.program.explicit or b.prefix != "v":
        return
    name, step = f"ref{len(b.lines)}", _step_of(b, x)
    n = b.r.randrange(x.shape[0])
    writes = [
        f"{name}[...] = {step(f'{name}[...]')}",
        f"{name}[{n}] = {step(f'{name}[{n}]')}",
        f"{name}[{n}:] = {step(f'{name}[{n}:]')}",
        f"lax.fori_loop(0, {x.shape[0]}, lambda i, c: {name}.__setitem__(i, {step(f'{name}[i]')}), None)",
    ]
    b.lines.append(f"{name} = api.new_ref({x.name})\n    " + "\n    ".join(b.r.sample(writes, 2)))
    b.like(f"{name}[...]", x, exact=x.kind == "i")


def _sparse(b: Body) -> None:
    x = b.pick(
        lambda x: x.dtype in ("float32", "int32", "float64") and len(x.shape) == 2 and x.size
    )
    if x is None or b.program.explicit or b.program.wild:
        return _dot_general(b)
    (n, m), construction = x.shape, f"sparse.BCOO.fromdense({x.name}, nse={x.size})"
    ways = [
        (f"({construction} @ xp.ones(({m}, 2), xp.{x.dtype}))", (n, 2), False),
        (f"({construction}.T @ {x.name})", (m, m), False),
        (f"{construction}.T.todense()", (m, n), True),
        (f"({construction} * {x.name}).todense()", (n, m), False),
        (f"{construction}.sum(0).todense()", (m,), False),
        (f"sparse.bcoo_reduce_sum({construction}, axes=(1,)).todense()", (n,), False),
        (f"({construction} + {construction}).todense()", (n, m), True),
        (f"sparse.BCOO.fromdense({x.name}, nse={x.size}, n_batch=1).todense()", (n, m), True),
    ]
    text, shape, moved = b.r.choice(ways)
    if np.prod(shape) <= b.limit:
        b.like(
            text if x.kind == "i" or moved else f"0.25 * {text}",
            x,
            shape=shape,
            exact=x.exact and (moved or x.kind == "i"),
        )


def _pallas(b: Body) -> None:
    """Add a Pallas kernel over blocks that need not divide their operand."""
    x = b.pick(
        lambda x: x.dtype in ("float32", "int32", "bfloat16") and len(x.shape) in (1, 2) and x.size
    )
    if x is None or b.program.explicit:
        return _nested(b)
    blocks = tuple(b.r.randint(1, n + 1) for n in x.shape)
    grid = tuple(-(-n // m) for n, m in zip(x.shape, blocks))
    order = "lambda *i: i" if len(grid) == 1 or b.r.random() < 0.6 else "lambda i, j: (j, i)"
    grid = grid if order == "lambda *i: i" else grid[::-1]
    step = _step_of(b, x)("a[...]").replace("near(", "(")
    spec = f"pallas.BlockSpec({blocks}, {order})"
    b.like(
        f"pallas.pallas_call(lambda a, o: o.__setitem__(..., {step}), out_shape=api.ShapeDtypeStruct({x.shape}, xp.{x.dtype}), "
        f"grid={grid}, in_specs=[{spec}], out_specs={spec}, interpret=True)({x.name})",
        x,
        exact=x.kind == "i" and x.exact,
    )


def _export(b: Body) -> None:
    """Add an exported function that is serialized, deserialized and called."""
    x = b.pick(_is_number)
    if x is None or b.program.explicit or b.prefix != "v":
        return
    what = f"export.export(api.jit(lambda c: {_nest(b, x, 1, 'c')}))(api.ShapeDtypeStruct({x.shape}, xp.{x.dtype}))"
    # a function exported in a transformation may only read its own argument
    names = [v.name for v in b.values if v.name != x.name]
    if any(name in what for name in names) or f"{x.name}." in what or what.count(x.name):
        what = f"export.export(api.jit(lambda c: {_step_of(b, x)('c')}))(api.ShapeDtypeStruct({x.shape}, xp.{x.dtype}))"
    order = 0 if "while_loop" in what else 1
    b.like(
        f"export.deserialize({what}.serialize(vjp_order={order})).call({x.name})",
        x,
        exact=x.kind == "i",
    )


NESTED_STEPS = [
    (_nested, 3),
    (_custom_rule, 2),
    (_policy, 1),
    (_dot_general, 2),
    (_conv_general, 2),
    (_pad, 2),
    (_ties, 2),
    (_donation, 1),
    (_callback, 1),
    (_ref, 1),
    (_sparse, 1),
    (_pallas, 1),
    (_export, 1),
]
