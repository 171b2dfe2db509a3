"""Minimize a chain that fails, and write it as a script.

In:   a `Chain` whose verdict is "fault".
Out:  a smaller one with a fault, and the text of a script that shows it without this package.
Laws: candidates are judged in a process of their own, so that a crash counts as a fault.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

from tests.fuzz.chain_body import ChainArgument, ChainBody, Statement
from tests.fuzz.chain_judge import ChainServer
from tests.fuzz.chain_ops import OPS
from tests.fuzz.chains import Chain, draw_shape

REDRAWS = 150  # smaller chains of the same ops that are tried


def shrink(chain: Chain) -> Chain:
    """Return a smaller chain that fails: fewer ops, results and arguments, and smaller sizes."""
    judge = ChainServer("4")
    try:
        if not _fails(judge, chain):
            return chain
        chain = _shrink_steps(judge, chain)
        for candidate in _redraw(chain):
            if candidate.largest < chain.largest and _fails(judge, candidate):
                chain = _shrink_steps(judge, candidate)
                break
        return chain
    finally:
        judge.close()


def _fails(judge: ChainServer, chain: Chain) -> bool:
    answer = judge.ask(chain, "judge")
    return isinstance(answer, str) or answer.kind == "fault"


def _shrink_steps(judge: ChainServer, chain: Chain) -> Chain:
    """Apply simplifications that keep the fault until none does."""
    while True:
        for candidate in _simplify(chain):
            if _fails(judge, candidate):
                chain = candidate
                break
        else:
            return chain


def _simplify(chain: Chain) -> Iterator[Chain]:
    """Yield simpler chains, the simplest first."""
    if chain.mesh:
        yield replace(chain, mesh=(), specs=())
    if chain.donated:
        yield replace(chain, donated=())
    if chain.transformation != "none":
        yield _transform(chain, "none")
    for kind in ("grad", "jvp"):
        if chain.transformation in {"remat", "grad of vmap", "jvp"} - {kind}:
            yield _transform(chain, kind)
    for s in chain.statements[:-1]:
        if chain.results != (s.result,):
            yield _drop_unused(replace(chain, results=(s.result,)))
    for v in chain.results if len(chain.results) > 1 else ():
        yield _drop_unused(replace(chain, results=(v,)))
        rest = tuple(w for w in chain.results if w is not v)
        yield _drop_unused(replace(chain, results=rest))
    smaller = _drop_unused(chain)
    if smaller != chain:
        yield smaller
    for s in chain.statements[:-1]:
        yield from _without(chain, s)


def _transform(chain: Chain, kind: str) -> Chain:
    """Return the chain with a transformation that batches nothing."""
    specs = tuple(
        tuple(entry for k, entry in enumerate(spec) if k != d)
        for spec, d in zip(chain.specs, chain.axes or (None,) * len(chain.specs))
    )
    return replace(chain, transformation=kind, axes=(), batch=1, specs=specs)


def _drop_unused(chain: Chain) -> Chain:
    """Drop statements and arguments that no result depends on."""
    used = {v.name for v in chain.results}
    statements: list[Statement] = []
    for s in reversed(chain.statements):
        if s.result.name in used:
            used |= set(s.reads)
            statements.insert(0, s)
    if chain.donated or chain.mesh:  # they name arguments by position
        return replace(chain, statements=tuple(statements))
    kept = [i for i, a in enumerate(chain.arguments) if a.name in used]
    axes = tuple(chain.axes[i] for i in kept) if chain.axes else ()
    arguments = tuple(chain.arguments[i] for i in kept)
    return _number(replace(chain, statements=tuple(statements), arguments=arguments, axes=axes))


def _without(chain: Chain, dropped: Statement) -> Iterator[Chain]:
    """Yield the chain with a statement replaced by one of its operands, or by a new argument."""
    old, rest = dropped.result, [s for s in chain.statements if s is not dropped]
    if old in chain.results or chain.donated or chain.mesh:
        return
    types = {s.result.name: (s.result.shape, s.result.dtype) for s in rest}
    types |= {a.name: (a.shape, a.dtype) for a in chain.arguments}
    for name in dropped.reads:
        if types.get(name) == (old.shape, old.dtype):
            statements = tuple(_rename(s, {old.name: name}) for s in rest)
            yield _drop_unused(replace(chain, statements=statements))
    values = "whole" if old.exact else "normal"
    argument = ChainArgument(old.name, old.shape, old.dtype, values)
    axes = (*chain.axes, 0) if chain.axes else ()
    yield _drop_unused(
        replace(chain, statements=tuple(rest), arguments=(*chain.arguments, argument), axes=axes)
    )


def _rename(s: Statement, names: dict[str, str]) -> Statement:
    pattern = re.compile(rf"\b(?:{'|'.join(names)})\b") if names else None
    text = pattern.sub(lambda m: names[m[0]], s.text) if pattern else s.text
    result = replace(s.result, name=names.get(s.result.name, s.result.name))
    return replace(s, text=text, reads=tuple(names.get(n, n) for n in s.reads), result=result)


def _number(chain: Chain) -> Chain:
    """Name arguments and values in order."""
    names = {a.name: f"a{i}" for i, a in enumerate(chain.arguments)}
    names |= {s.result.name: f"v{i}" for i, s in enumerate(chain.statements)}
    return replace(
        chain,
        arguments=tuple(replace(a, name=names[a.name]) for a in chain.arguments),
        statements=tuple(_rename(s, names) for s in chain.statements),
        results=tuple(replace(v, name=names[v.name]) for v in chain.results),
    )


def _redraw(chain: Chain) -> Iterator[Chain]:
    """Yield smaller chains of the same ops, transformation and dtype."""
    dtype = chain.arguments[0].dtype if chain.arguments else "float32"
    for seed in range(REDRAWS):
        r = random.Random(seed)
        most = r.choice((16, 64, 256, 4096))
        body = ChainBody(r, 4 * most)
        x = body.argument(draw_shape(r, 1, most), dtype)
        for name in chain.ops:
            x = OPS[name].apply(body, x)
            if x is None:
                break
        if x is None or (chain.axes and len(body.arguments) != len(chain.axes)):
            continue
        axes = tuple(
            d if d is None else min(d, 1, len(a.shape)) for a, d in zip(body.arguments, chain.axes)
        )
        yield Chain(
            tuple(body.arguments), tuple(body.statements), (x,), chain.transformation, chain.batch,
            axes, x64=chain.x64, seed=seed,
        )  # fmt: skip


# ---- scripts


SCRIPT = '''"""{title}"""
import numpy as np

import weft as api
from tests.fuzz.chain_body import ChainArgument
from tests.fuzz.chains import Chain
from weft import lax, nn
from weft import numpy as xp

near = lambda x: x
{text}
chain = Chain({arguments!r}, (), (), {transformation!r}, {batch}, {axes!r}, seed={seed})
arrays = chain.arrays()
api.config.update("jax_enable_x64", {x64})
got = api.tree.leaves(api.jit(main, donate_argnums={donated})(*map(xp.asarray, arrays)))
want = api.tree.leaves(api.jit(main, backend="reference")(*map(xp.asarray, arrays)))
for x, y in zip(got, want):
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype == api.float0:
        continue
    wrong = ~np.isclose(x.astype(complex), y.astype(complex), rtol=1e-3, atol=1e-3, equal_nan=True)
    print(x.dtype, x.shape, f"{{int(wrong.sum())}} of {{wrong.size}} differ")
    print("  got ", x[wrong].ravel()[:6], "\\n  want", y[wrong].ravel()[:6])
'''


def script(chain: Chain, title: str) -> str:
    """Return the text of a script that runs the chain compiled and in NumPy."""
    parts = {**vars(chain), "title": title, "text": chain.text}
    return SCRIPT.format(**parts)
