"""`custom_root` and `custom_linear_solve`: solutions of equations, differentiated by the implicit function theorem.

In:   a function, and any solver; the solver is not differentiated.
Out:  the solution. The derivative of a root solves the linearized equation; the derivative and
      transpose of a linear solution solve the same linear equation, or its transpose, for another
      right-hand side.
Next: `custom_rules`, which implements the derivative of a root.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.control.call_rules import call_reference, call_type
from weft._engine.control.custom_rules import FunctionWithJvp, apply_ruled
from weft._engine.control.custom_values import to_front
from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import CallLike, declare_unsupported
from weft._engine.core.stage import hoist_shared_tracers, stage
from weft._engine.core.trace import EvalTrace, UndefPrimal, Zero, is_undef, trace_state, typeof
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ops.arithmetic import neg
from weft._engine.ops.elementwise import add_any
from weft._engine.transforms.batch import batch_jaxpr, to_dim
from weft._engine.transforms.jvp import instantiate, jvp_flat
from weft._engine.transforms.linearize import linearize_flat
from weft._engine.transforms.transpose import backward_pass
from weft._engine.util import tree
from weft._engine.util.source import function_name

#: params: jaxpr (solve), matvec, vecmat, transpose_solve (the last two may be None), num_consts,
#: name; all programs take the inputs
#: of the operation, constants and right-hand side; the solvers return the solution, then auxiliary
#: data
linear_solve_p = CallLike(
    "custom_linear_solve",
    multiple_results=True,
    only_derivatives=("matvec", "vecmat", "transpose_solve"),
)


class _TreeFunctionStager:
    """Staging for functions of trees with one structure.

    Their results must have the same structure.
    """

    def __init__(self, api: str, value: Any, what: str):
        self.api, self.what = api, what
        self.flat, self.tree = tree.tree_flatten(value)
        self.avals = [typeof(x) for x in self.flat]

    def stage(
        self, fun: Callable, role: str, has_aux: bool = False, times: int = 1
    ) -> tuple[Jaxpr, Any]:
        """Return the program of `fun`, and the structure of its auxiliary results."""
        aux_tree: list = []

        def flat_fun(*xs):
            n = len(self.flat)
            out = fun(
                *[tree.tree_unflatten(self.tree, xs[k * n : (k + 1) * n]) for k in range(times)]
            )
            aux: list = []
            if has_aux:
                if not isinstance(out, (tuple, list)) or len(out) != 2:
                    raise TypeError(
                        f"{self.api}: {role} must return a pair (solution, aux) with has_aux=True, got {type(out)}."
                    )
                aux, structure = tree.tree_flatten(out[1])
                aux_tree[:] = [structure]
                out = out[0]
            leaves, structure = tree.tree_flatten(out)
            if structure != self.tree:
                raise TypeError(
                    f"{self.api}: {role}() output pytree structure must match {self.what}, {self.tree}, got {structure}."
                    f"{tree.describe_difference(self.tree, structure, 'expected', 'output')}"
                )
            for x, aval in zip(leaves, self.avals):
                if typeof(x).shape != aval.shape:
                    raise ValueError(
                        f"{self.api}: {role}() output shapes must match {self.what}, got {[typeof(x).shape for x in leaves]} "
                        f"and {[a.shape for a in self.avals]}."
                    )
            return [*leaves, *aux]

        return stage(flat_fun, self.avals * times, role), aux_tree

    def unflatten(self, leaves: Sequence, aux_tree: list) -> Any:
        n = len(self.flat)
        solution = tree.tree_unflatten(self.tree, leaves[:n])
        return (solution, tree.tree_unflatten(aux_tree[0], leaves[n:])) if aux_tree else solution


def custom_root(
    f: Callable, initial_guess: Any, solve: Callable, tangent_solve: Callable, has_aux: bool = False
) -> Any:
    """Return a root of `f`, `solve(f, initial_guess)`.

    It is differentiable with respect to the values that `f` closes over.

    `f` maps a tree of arrays to one of the same structure and shapes. `tangent_solve(g, y)` returns
    the solution x of `g(x) == y` for a linear function g, the derivative of `f` at the root. With
    `has_aux`, `solve` returns `(root, aux)`, and so does this function. Raises TypeError if a
    function returns another structure than `initial_guess` has, ValueError for other shapes.

    >>> def newton(f, x):
    ...     return lax.fori_loop(0, 20, lambda i, x: x - f(x) / weft.grad(f)(x), x)
    >>> root = lambda a: lax.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> print(f"{root(4.0):.3f} {weft.grad(root)(4.0):.3f}")
    2.000 0.250
    """
    guess = _TreeFunctionStager("custom_root", initial_guess, "initial_guess")
    name = function_name(f)

    def tangents(x, y):
        flat = tree.tree_leaves(x)
        flat_f = lambda *xs: tree.tree_leaves(f(tree.tree_unflatten(guess.tree, xs)))
        _, program, nonzero = linearize_flat(flat_f, flat)

        def linear(t):
            results = iter(evaluate(program, *tree.tree_leaves(t)))
            out = [
                next(results) if nz else instantiate(Zero(a.to_tangent_aval()))
                for nz, a in zip(nonzero, guess.avals)
            ]
            return tree.tree_unflatten(guess.tree, out)

        return tangent_solve(linear, y)

    f_program, _ = guess.stage(f, "f")
    solver, aux_tree = guess.stage(lambda x: solve(f, x), "solve", has_aux)
    tangent_solver, _ = guess.stage(tangents, "tangent_solve", times=2)
    (f_program, solver), consts = hoist_shared_tracers([f_program, solver])
    (tangent_solver,), more = hoist_shared_tracers([tangent_solver])
    n, m = len(consts), len(more)

    def run(*args):
        return evaluate(solver, *args[:n], *args[n + m :])

    def root_jvp(primals, tangents):
        outs = apply_ruled(trace_state.trace, FunctionWithJvp(run, root_jvp, name), primals)
        root, aux = outs[: len(guess.flat)], outs[len(guess.flat) :]
        _, rhs = jvp_flat(lambda *cs: evaluate(f_program, *cs, *root), primals[:n], tangents[:n])
        root_tangents = evaluate(tangent_solver, *primals[n : n + m], *root, *map(instantiate, rhs))
        return outs, [*map(neg, root_tangents), *(Zero(typeof(x).to_tangent_aval()) for x in aux)]

    root_jvp.__name__ = name
    ruled = FunctionWithJvp(run, root_jvp, name)
    outs = apply_ruled(trace_state.trace, ruled, [*consts, *more, *guess.flat])
    return guess.unflatten(outs, aux_tree)


def custom_linear_solve(
    matvec: Callable,
    b: Any,
    solve: Callable,
    transpose_solve: Callable | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """Return the solution x of `matvec(x) == b`, `solve(matvec, b)`.

    It is differentiable with respect to `b` and the values that `matvec` closes over.

    `matvec` is linear, on trees of arrays with the structure and shapes of `b`. Reverse mode calls
    `transpose_solve(vecmat, b)`, where vecmat is the transpose of `matvec`; with `symmetric`,
    `solve` is used for both. With `has_aux`, the solvers return `(solution, aux)`. Raises TypeError
    if a function returns another structure than `b` has, ValueError for other shapes.

    >>> a = wnp.array([[4., 1.], [1., 3.]])
    >>> by_lu = lambda matvec, b: wnp.linalg.solve(weft.jacobian(matvec)(b), b)
    >>> x = lax.custom_linear_solve(lambda x: a @ x, wnp.array([1., 2.]), by_lu, symmetric=True)
    >>> bool(wnp.allclose(a @ x, wnp.array([1., 2.])))
    True
    """
    rhs = _TreeFunctionStager("custom_linear_solve", b, "b")
    matvec_program, _ = rhs.stage(matvec, "matvec")
    solver, aux_tree = rhs.stage(lambda y: solve(matvec, y), "solve", has_aux)
    programs = [matvec_program, solver]
    if symmetric:
        transpose_solver, _ = rhs.stage(
            lambda y: (transpose_solve or solve)(matvec, y), "transpose_solve", has_aux
        )
        programs += [matvec_program, transpose_solver]
    elif transpose_solve is not None:

        def vecmat(y):
            linear = [UndefPrimal(a) for a in matvec_program.in_avals]
            cotangents = backward_pass(matvec_program, linear, tree.tree_leaves(y))
            return tree.tree_unflatten(rhs.tree, list(map(instantiate, cotangents)))

        vecmat_program, _ = rhs.stage(vecmat, "vecmat")
        transpose_solver, _ = rhs.stage(
            lambda y: transpose_solve(vecmat, y), "transpose_solve", has_aux
        )
        programs += [vecmat_program, transpose_solver]
    hoisted, consts = hoist_shared_tracers(programs)
    matvec_jaxpr, solve_jaxpr, *transposed = hoisted
    vecmat_jaxpr, transpose_jaxpr = transposed or (None, None)
    if type(trace_state.trace) is EvalTrace:
        # not differentiated: run op by op, which reuses compiled ops
        return rhs.unflatten(evaluate(solve_jaxpr, *rhs.flat), aux_tree)
    outs = linear_solve_p.bind(
        *consts,
        *rhs.flat,
        jaxpr=solve_jaxpr,
        matvec=matvec_jaxpr,
        vecmat=vecmat_jaxpr,
        transpose_solve=transpose_jaxpr,
        num_consts=len(consts),
        name=function_name(matvec),
    )
    return rhs.unflatten(outs, aux_tree)


linear_solve_p.ref_effects = lambda params: params["jaxpr"].effects
linear_solve_p.define(
    type=call_type,
    reference=call_reference,
    factors=declare_unsupported("calls are inlined before partitioning"),
    lower=declare_unsupported("calls are inlined before fusion"),
)


@linear_solve_p.def_jvp
def _jvp(primals: Sequence, tangents: Sequence, *, matvec: Jaxpr, num_consts: int, **params):
    params.update(matvec=matvec, num_consts=num_consts)
    consts, n = list(primals[:num_consts]), len(primals) - num_consts
    outs = linear_solve_p.bind(*primals, **params)
    right = list(tangents[num_consts:])
    if any(type(t) is not Zero for t in tangents[:num_consts]):
        _, moved = jvp_flat(
            lambda *cs: evaluate(matvec, *cs, *outs[:n]), consts, tangents[:num_consts]
        )
        right = [_minus(r, m) for r, m in zip(right, moved)]
    aux = [Zero(typeof(x).to_tangent_aval()) for x in outs[n:]]
    if all(type(t) is Zero for t in right):
        return outs, [*right, *aux]
    solution = linear_solve_p.bind(*consts, *map(instantiate, right), **params)
    return outs, [*solution[:n], *aux]


def _minus(x, y):
    if type(y) is Zero:
        return x
    return neg(y) if type(x) is Zero else add_any(x, neg(y))


@linear_solve_p.def_transpose
def _transpose(cts: Sequence, *args, jaxpr, matvec, vecmat, transpose_solve, num_consts, name):
    if transpose_solve is None:
        raise TypeError(
            f"custom_linear_solve: transpose_solve required for backwards mode automatic differentiation of the solution for "
            f"{name}. Give it, or symmetric=True if the linear function is its own transpose."
        )
    consts, right = args[:num_consts], args[num_consts:]
    if (
        any(map(is_undef, consts))
        or not all(map(is_undef, right))
        or any(type(ct) is not Zero for ct in cts[len(right) :])
    ):
        raise NotImplementedError(
            "custom_linear_solve: the transpose is known for a linear right-hand side alone, not with respect to "
            "auxiliary results or values that its functions close over."
        )
    solution = linear_solve_p.bind(
        *consts,
        *map(instantiate, cts[: len(right)]),
        jaxpr=transpose_solve,
        matvec=vecmat,
        vecmat=matvec,
        transpose_solve=jaxpr,
        num_consts=num_consts,
        name=name,
    )
    return [None] * num_consts + list(solution[: len(right)])


@linear_solve_p.def_batch
def _batch(
    axis,
    args: Sequence,
    dims: Sequence,
    *,
    jaxpr,
    matvec,
    vecmat,
    transpose_solve,
    num_consts,
    name,
):
    args, flags = to_front(args, dims)
    n = len(args) - num_consts
    batched = list(flags[num_consts:])  # for the solution and the right-hand side alike
    programs = (matvec, jaxpr, *(p for p in (vecmat, transpose_solve) if p is not None))
    while True:
        ins = (*flags[:num_consts], *batched)
        wider = [
            any(out_flags)
            for out_flags in zip(batched, *(batch_jaxpr(p, axis, ins)[1][:n] for p in programs))
        ]
        if wider == batched:
            break
        batched = wider
    mapped, outs_batched = [], ()
    for program in (matvec, jaxpr, vecmat, transpose_solve):
        if program is None:
            mapped.append(None)
            continue
        aux = batch_jaxpr(program, axis, ins)[1][n:]
        out_flags, batched_outs = batch_jaxpr(program, axis, ins, (*batched, *aux))
        mapped.append(out_flags)
        outs_batched = batched_outs if program is jaxpr else outs_batched
    right = [
        to_dim(x, 0 if f else None, axis, 0) if b else x
        for x, f, b in zip(args[num_consts:], flags[num_consts:], batched)
    ]
    outs = linear_solve_p.bind(
        *args[:num_consts],
        *right,
        jaxpr=mapped[1],
        matvec=mapped[0],
        vecmat=mapped[2],
        transpose_solve=mapped[3],
        num_consts=num_consts,
        name=name,
    )
    return outs, [0 if b else None for b in outs_batched]
