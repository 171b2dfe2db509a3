"""Common parts of operations that hold programs: staging of user functions, partial evaluation,
messages.

In:   a user's function on trees, and the types of its flat arguments.
Out:  a `StagedBody`: a program whose constants are its leading inputs, the values of the constants, and
      the tree of results.
Laws: a function is traced once per argument types, as long as it lives and the objects that it
      closes over stay the same; functions with equal programs share one program, hence one
      executable.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from weft._engine.control.call import jit_p
from weft._engine.control.hijax_types import flatten
from weft._engine.control.ref import check_returned
from weft._engine.core.annotations import cast
from weft._engine.core.context import TraceContext, current_context
from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import Primitive
from weft._engine.core.stage import ClosedOverRefsError, StageTrace, stage
from weft._engine.core.trace import (
    EvalTrace,
    Tracer,
    allow_open_shardings,
    any_tracers,
    axis_env,
    current_trace,
    set_trace,
    typeof,
)
from weft._engine.cpython.code_objects import assigned_free_variables
from weft._engine.ir.jaxpr import DropVar, Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ir.rewrite import atom_key, inline_calls, is_transparent
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.casting import convert_element_type
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.ops.placement import reshard_like
from weft._engine.util import dtypes, tree
from weft._engine.util.config import config
from weft._engine.util.dispatch_state import on_clear_caches
from weft._engine.util.errors import describe
from weft._engine.util.record import record, replace
from weft._engine.util.source import function_name, positional_names, user_frame


def pick(values: Sequence, mask: Sequence[bool]) -> list:
    """Return the values selected by `mask`."""
    return [v for v, m in zip(values, mask) if m]


def split_list(values: Sequence, *sizes: int) -> list[list]:
    """Split `values` into parts of the given sizes and the remainder.

    >>> split_list([1, 2, 3, 4], 1, 2)
    [[1], [2, 3], [4]]
    """
    values, parts = list(values), []
    for n in sizes:
        parts.append(values[:n])
        values = values[n:]
    return [*parts, values]


def runs_in_python() -> bool:
    """Return True if control flow runs as plain Python: outside a trace and with jit disabled."""
    return config.disable_jit and type(current_trace()) is EvalTrace


def freeze_numpy_arrays(values: Any) -> Any:
    """Return the tree with its NumPy arrays as immutable arrays.

    `x += 1` in a function then makes a new array, as under staging.
    """

    same = lambda x: broadcast_in_dim(x, x.shape, tuple(range(x.ndim)))
    return tree.tree_map(
        lambda x: same(x) if isinstance(x, np.ndarray) and x.dtype != dtypes.float0 else x, values
    )


def unchanged_carries(jaxpr: Jaxpr, first: int, count: int) -> list[bool]:
    """Return, for each of the `count` carries, whether the program returns it unchanged.

    Carries begin at input `first` of `jaxpr`.
    """
    return [a is b for a, b in zip(jaxpr.invars[first : first + count], jaxpr.outvars)]


def restore_unchanged_carries(
    jaxpr: Jaxpr, first: int, arguments: Sequence, results: Sequence
) -> list:
    """Return the results of a loop, with unchanged carries restored.

    The initial value replaces each traced carry that no step changes.
    """
    unchanged = unchanged_carries(jaxpr, first, len(arguments))
    return [
        x if keep and isinstance(x, Tracer) else out
        for keep, x, out in zip(unchanged, arguments, results)
    ]


# --- staging ----------------------------------------------------------------------------------------------------------


@record
class StagedBody:
    """A staged function. `jaxpr` takes the values `consts` first, then the arguments."""

    jaxpr: Jaxpr
    consts: list
    out_tree: Any

    @property
    def out_avals(self) -> list[ShapedArray]:
        return self.jaxpr.out_avals


_staged: weakref.WeakKeyDictionary[Callable, dict] = weakref.WeakKeyDictionary()


def stage_body(
    fun: Callable, in_tree: Any, avals: Sequence[ShapedArray], name: str, api: str
) -> StagedBody:
    """Stage `fun(*args)`.

    `in_tree` is the tree of the tuple of arguments and `avals` are the types of their leaves.
    Errors name the function `api`.
    """
    key = (in_tree, tuple(avals), name, current_context(allows_unspecified=False))
    captured = _capture(fun)
    try:
        known = {} if captured is None else _staged.setdefault(fun, {})
    except TypeError:  # no hash or no weak reference
        known = {}
    cached = known.get(key)
    if (
        cached is not None
        and captured is not None
        and len(cached[0]) == len(captured)
        and all(a is b for a, b in zip(cached[0], captured))
    ):
        return cached[1]
    out_tree: list = []

    def flat_fun(*xs):
        outs, structure = flatten(
            fun(*tree.tree_unflatten(in_tree, xs)), f"the result of {api}'s {name}"
        )
        out_tree[:] = [structure]
        check_returned(fun, api, outs)
        for out in outs:
            typeof(out)
        return outs

    with allow_open_shardings(False):
        try:
            jaxpr = stage(flat_fun, avals, name)
        except ClosedOverRefsError as used:
            used.fun, used.out_tree = fun, out_tree[0] if out_tree else None
            raise
    consts = list(jaxpr.consts)
    body = StagedBody(deduplicate_program(without_consts(jaxpr)), consts, out_tree[0])
    if not any_tracers(consts):
        known[key] = (captured, body)
    return body


class NamedCall(str):
    """The name of a call that is printed as one operation with the parameters `shown`."""

    __slots__ = ("shown",)

    def __new__(cls, name: str, shown: tuple):
        self = super().__new__(cls, name)
        self.shown = shown
        return self

    def __reduce__(self):
        return NamedCall, (str(self), self.shown)


@functools.lru_cache(maxsize=512)
def _operation(
    fun: Callable, name: str, static: tuple, avals: tuple, context: TraceContext
) -> tuple[Jaxpr, str]:
    jaxpr = stage(lambda *xs: [fun(*xs, **dict(static))], avals, name or function_name(fun))
    # lines of the caller
    jaxpr = jaxpr.replace(eqns=[eqn.replace(source=None) for eqn in jaxpr.eqns])
    return jaxpr, NamedCall(name, static) if name else function_name(fun)


def call_operation(fun: Callable, name: str, *args: Any, **static: Any) -> Any:
    """Call `fun(*args, **static)`, which returns one value, and record it as one equation.

    Programs print the equation as the operation `name`, unless that is empty. The call is traced
    once per argument types: `fun` must be a module-level function that depends on its arguments and
    settings only.
    """
    if runs_in_python():
        return fun(*args, **static)
    avals = tuple([typeof(x) for x in args])
    jaxpr, called = _operation(fun, name, tuple(static.items()), avals, current_context())
    none = (None,) * len(args)
    return jit_p.bind(
        *args,
        jaxpr=jaxpr,
        name=called,
        in_shardings=none,
        out_shardings=(None,),
        donated=(False,) * len(args),
        inline=False,
        keep_unused=False,
    )[0]


class AdaptedFunction:
    """The function `adapter(fun, *args)` of `args`.

    There is one object per pair, which is staged once, as `fun` itself is.
    """

    __slots__ = ("__weakref__", "fun", "adapter")

    def __init__(self, fun: Callable, adapter: Callable):
        self.fun, self.adapter = fun, adapter

    def __call__(self, *args):
        return self.adapter(self.fun(), *args)

    __name__ = property(lambda self: function_name(self.fun()))


_adapted: weakref.WeakKeyDictionary[Callable, dict[Callable, AdaptedFunction]] = (
    weakref.WeakKeyDictionary()
)


def adapt_function(fun: Callable, adapter: Callable) -> AdaptedFunction:
    """Return `adapter(fun, *args)` as a function of `args`, cached as long as `fun` lives."""
    try:
        known = _adapted.setdefault(fun, {})
        if adapter not in known:
            known[adapter] = AdaptedFunction(weakref.ref(fun), adapter)
        return known[adapter]
    except TypeError:  # no hash or no weak reference
        return AdaptedFunction(lambda: fun, adapter)


def _capture(fun: Callable) -> tuple | None:
    """Return the objects that a function closes over, to compare by identity.

    Return None if their state may change unnoticed.
    """
    if isinstance(fun, AdaptedFunction):
        return _capture(fun.fun())
    if isinstance(fun, functools.partial):
        inner = _capture(fun.func)
        return None if inner is None else (*inner, *fun.args, *fun.keywords.values())
    if isinstance(fun, BuiltinFunctionType):
        return ()
    if not isinstance(fun, FunctionType):
        return None if isinstance(fun, MethodType) else _state_of(fun)
    cells = fun.__closure__
    if not cells:
        return ()
    # tracing itself changes variables that the function assigns
    contents, written = [], assigned_free_variables(fun.__code__)
    for name, cell in zip(fun.__code__.co_freevars, cells):
        if name in written:
            continue
        try:
            contents.append(cell.cell_contents)
        except ValueError:  # not bound yet
            contents.append(None)
    return tuple(contents)


def _state_of(fun: Any) -> tuple | None:
    """Return the state of a callable object; None if unknown.

    The state is its attributes and the objects that its wrapped function closes over.
    """
    attributes = getattr(fun, "__dict__", None)
    if attributes is None:
        return None
    wrapped = attributes.get("__wrapped__")
    inner = () if wrapped is None else _capture(wrapped)
    return None if inner is None else (*inner, *attributes.values())


def without_consts(jaxpr: Jaxpr) -> Jaxpr:
    """Return `jaxpr` with its constants as leading inputs."""
    if not jaxpr.constvars:
        return jaxpr
    return Jaxpr(
        (),
        (),
        [*jaxpr.constvars, *jaxpr.invars],
        jaxpr.outvars,
        jaxpr.eqns,
        jaxpr.effects,
        jaxpr.name,
    )


class _Structure:
    """A program that is hashed and compared by its structure.

    Two traces of one function are equal.
    """

    __slots__ = ("jaxpr", "key", "hash")

    def __init__(self, jaxpr: Jaxpr, key: tuple):
        self.jaxpr, self.key, self.hash = jaxpr, key, hash(key)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other) -> bool:
        return self.key == other.key


@functools.lru_cache(maxsize=256)
def _first(structure: _Structure) -> Jaxpr:
    return structure.jaxpr


def _holds_arrays(jaxpr: Jaxpr) -> bool:
    """Return True if the program or a nested program has constants."""
    return jaxpr.memo(
        "holds arrays",
        lambda: (
            bool(jaxpr.consts)
            or any(_holds_arrays(inner) for eqn in jaxpr.eqns for _, inner in subjaxprs(eqn.params))
        ),
    )


def deduplicate_program(jaxpr: Jaxpr) -> Jaxpr:
    """Return `jaxpr` or an equal program that was staged before.

    Its derived programs and executables are then reused.

    Programs are equal if their equations, types and source lines are. Programs with unhashable
    parameters are not shared, nor are programs with constant arrays, which would stay in memory.
    """
    if _holds_arrays(jaxpr):
        return jaxpr
    numbers: dict[Var, int] = {v: i for i, v in enumerate(jaxpr.invars)}
    key: list = [jaxpr.name, *(v.aval for v in numbers)]
    name = lambda a: atom_key(a) if type(a) is Literal else numbers[a]
    for eqn in jaxpr.eqns:
        key += [eqn.primitive, tuple(eqn.params.items()), *map(name, eqn.invars), eqn.source]
        for v in eqn.outvars:
            numbers[v] = len(numbers)
            key.append(v.aval)
    key += map(name, jaxpr.outvars)
    try:
        return _first(_Structure(jaxpr, tuple(key)))
    except TypeError:
        return jaxpr


@on_clear_caches
def _clear_caches() -> None:
    """Drop all staged functions."""
    _staged.clear()
    _first.cache_clear()
    _operation.cache_clear()


# --- partial evaluation -----------------------------------------------------------------------------------------------


def define_partial_eval(primitive: Primitive, split: Callable, sees_policy: bool = False) -> None:
    """Define the partial evaluation of `primitive` by one rule.

    It applies in a running trace and inside a program.

    `split(args, unknown, params, known, staged) -> (outs, out_unknown)` works on values and on
    variables alike. It applies operations by `known(primitive, args, params)` and
    `staged(primitive, args, params)` on the two sides; each output must be a result of one of them.
    With `sees_policy`, `split` takes the policy of a checkpoint, which selects residuals among
    nested equations.
    """

    def in_trace(trace, args, params):
        def known(p, operands, changed):
            with set_trace(trace.parent):
                return p.bind(*operands, **changed)

        def staged(p, operands, changed):
            return StageTrace.process(trace, p, operands, changed)

        return split(list(args), [trace.is_unknown(x) for x in args], params, known, staged)[0]

    def in_program(eqn, mask, *policy):
        sides: tuple[list[Eqn], list[Eqn]] = ([], [])

        def applier(side: list[Eqn]):
            def apply(p, operands, changed):
                avals = [x.aval for x in operands]
                outs = [Var(a) for a in p.abstract(avals, changed)]
                effects = p.effects_of(changed, avals)
                side.append(Eqn(p, operands, outs, changed, eqn.source, effects))
                return outs

            return apply

        outs, out_unknown = split(
            list(eqn.invars), list(mask), eqn.params, applier(sides[0]), applier(sides[1]), *policy
        )
        names = {out: v for out, v in zip(outs, eqn.outvars) if type(v) is not DropVar}
        rename = lambda atoms: [a if type(a) is Literal else names.get(a, a) for a in atoms]
        renamed = [
            [e.replace(invars=rename(e.invars), outvars=rename(e.outvars)) for e in side]
            for side in sides
        ]
        return renamed[0], renamed[1], pick(eqn.outvars, out_unknown)

    primitive.def_partial_eval(in_trace)
    primitive.partial_eval_eqn = in_program
    if sees_policy:

        def under_policy(eqn, mask, saveable):
            known, unknown, out_unknown = in_program(eqn, mask, saveable)
            allowed = [v for e in known for v in e.outvars if v not in eqn.outvars]  # the residuals
            return (
                known,
                unknown,
                out_unknown,
                allowed + [v for e in known for v in _saved_inside(e, saveable)],
            )

        primitive.partial_eval_saveable = under_policy
        primitive.saved_inside = _saved_inside


def _saved_inside(eqn: Eqn, saveable: Callable[[Eqn], bool]) -> list[Var]:
    """Return the results of an operation on programs that nested equations compute and the policy
    allows to save; a branch may return an operand instead.
    """
    programs = [
        inline_calls(jaxpr, is_transparent)
        for jaxpr in eqn.params.get("branches") or [eqn.params["jaxpr"]]
    ]
    saved: set[Var] = set()
    for inner in [inner for jaxpr in programs for inner in jaxpr.eqns]:
        rule = inner.primitive.saved_inside
        if saveable(inner):
            saved.update(inner.outvars)
        elif rule is not None:
            saved.update(rule(inner, saveable))
    available = saved.union(*[(*jaxpr.invars, *jaxpr.constvars) for jaxpr in programs])
    is_saved = lambda a: type(a) is Var and a in saved
    return [
        v
        for v, *inner_vars in zip(eqn.outvars, *[jaxpr.outvars for jaxpr in programs])
        if any(map(is_saved, inner_vars))
        and all(type(a) is Literal or a in available for a in inner_vars)
    ]


# --- arguments -------------------------------------------------------------------------------------------------------


def bind_arguments(fun: Callable, args: Sequence, kwargs: dict) -> tuple:
    """Return all arguments as positional arguments, with defaults."""
    if not kwargs:
        if type(fun) is FunctionType and not fun.__dict__ and len(args) >= fun.__code__.co_argcount:
            # fast path for the common case
            return tuple(args)
        try:
            names = positional_names(inspect.signature(fun))
        except (ValueError, TypeError):
            return tuple(args)
        if len(args) >= len(names):
            return tuple(args)
    bound = inspect.signature(fun).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            f"The following keyword arguments could not be resolved to positions: {', '.join(bound.kwargs)}. Rules get all "
            "arguments by position."
        )
    return bound.args


def bind_positions(api: str, fun: Callable, args: Sequence, kwargs: dict) -> tuple:
    """Return `bind_arguments(fun, args, kwargs)`; errors name the decorator `api`."""
    try:
        return bind_arguments(fun, args, kwargs)
    except TypeError as error:
        raise TypeError(
            f"The input arguments to the {api}-decorated function {function_name(fun)} do not fit its parameters:\n"
            f"{error}"
        ) from None


# --- messages ---------------------------------------------------------------------------------------------------------


def leaf_names(root: str, structure: Any) -> list[str]:
    """Return a name for each leaf of a tree with this structure, such as `carry['pos'][0]`."""
    marks = tree.tree_unflatten(structure, range(structure.num_leaves))
    return [root + tree.keystr(path) for path, _ in tree.tree_flatten_with_path(marks)[0]]


VARYING = "the varying manual axes do not match"


def describe_type_mismatch(one: ShapedArray, other: ShapedArray) -> str:
    """Return why two types differ; '' if they agree up to weak types."""
    if one.shape != other.shape:
        return "ranks differ" if one.ndim != other.ndim else "shapes differ"
    if one.dtype != other.dtype:
        return "dtypes differ"
    return "" if one.vma == other.vma else VARYING


def layout_mismatch(one: ShapedArray, other: ShapedArray) -> str:
    """Return why the explicit shardings of two types differ.

    Return '' if they agree or one is unspecified.
    """
    return (
        ""
        if one.explicit is None or other.explicit is None or one.explicit == other.explicit
        else "layouts differ"
    )


def check_same_tree(
    api: str, fact: str, left: tuple[str, Any], right: tuple[str, Any], rule: str
) -> None:
    """Raise TypeError unless two structures agree. `left` and `right` are (name, structure)."""
    (left_name, left_tree), (right_name, right_tree) = left, right
    if left_tree == right_tree:
        return
    where = tree.describe_difference(left_tree, right_tree, left_name, right_name)
    table = where.replace("a leaf", "an array").strip("\n").splitlines() or [
        f"{left_name} {left_tree}",
        f"{right_name} {right_tree}",
    ]
    raise TypeError(describe(api, fact, [line[2:] for line in table], user_frame(), rule))


def check_carry(
    api: str, fun: Callable, in_tree: Any, in_avals: Sequence, out_tree: Any, out_avals: Sequence
) -> None:
    """Raise TypeError unless a loop body returns its carry as it takes it.

    Its structure and types must be equal.
    """
    name = function_name(fun)
    if api == "fori_loop":  # the counter is not the user's
        in_tree, out_tree = in_tree.children()[-1], out_tree.children()[-1]
        in_avals, out_avals = (
            in_avals[len(in_avals) - in_tree.num_leaves :],
            out_avals[len(out_avals) - out_tree.num_leaves :],
        )
    check_same_tree(
        api,
        f"the carry that {name} returns has another structure than the carry it takes.",
        ("carry taken", in_tree),
        ("carry returned", out_tree),
        f"A carry keeps its structure in every iteration: make {name} return it as it came.",
    )
    rows, fixes = [], []
    for path, in_aval, out_aval in zip(leaf_names("carry", in_tree), in_avals, out_avals):
        why = describe_type_mismatch(in_aval, out_aval) or layout_mismatch(in_aval, out_aval)
        if why:
            rows.append(
                (
                    path,
                    f"taken as {in_aval.str_short()}",
                    f"returned as {out_aval.str_short()}",
                    why,
                )
            )
            fixes.append(_carry_fix(name, path, in_aval, out_aval, why))
    if rows:
        said = [fix for fix in fixes if fix]
        casts = [fix for fix in said if fix.startswith("applying")]
        fix = (
            "This might be fixed by:" + "".join(f"\n  * {cast}" for cast in casts)
            if len(casts) > 1
            else f"This might be fixed by {casts[0]}"
            if casts
            else said[0]
            if said
            else ""
        )
        raise TypeError(
            describe(
                api,
                f"carry input and carry output must have equal types; {name} returns another than it takes.",
                rows,
                user_frame(),
                "A carry keeps one type in every iteration.",
                fix,
            )
        )


def _carry_fix(
    name: str, path: str, input_type: ShapedArray, output_type: ShapedArray, why: str
) -> str:
    """Return adapter to change the code so that a carry keeps its type.

    Return '' if the fix for another leaf suffices.
    """
    if why == VARYING:
        more = sorted(output_type.vma - input_type.vma, key=str)
        axes = f"({', '.join(map(repr, more))}{',' if len(more) == 1 else ''})"
        return (
            (
                f"applying `weft.lax.pcast(..., {axes}, to='varying')` to the initial value of {path}, or lax.pvary({path}, {axes}), "
                f"so that it varies over {', '.join(map(repr, more))} from the first iteration on."
            )
            if more
            else ""
        )
    if why.startswith("layout"):
        return f"In {name}, return weft.sharding.reshard({path}, {input_type.sharding.spec!r})."
    if why.startswith("dtype"):
        return f"In {name}, return {path}.astype({input_type.dtype.name!r}), or start with {output_type.dtype.name}."
    return f"In {name}, return {path} with shape {list(input_type.shape)}, or start with shape {list(output_type.shape)}."


def keep_axes(body: StagedBody, in_avals: Sequence[ShapedArray]) -> StagedBody:
    """Return a loop body whose carried results vary over the axes of the initial carry.

    Return the same body if a result varies over more axes.
    """
    carry_avals = body.out_avals[: len(in_avals)]
    if all(a.vma == b.vma for a, b in zip(in_avals, carry_avals)) or any(
        b.vma - a.vma for a, b in zip(in_avals, carry_avals)
    ):
        return body
    return replace(body, jaxpr=cast_results_to_vary(body.jaxpr, tuple(a.vma for a in in_avals)))


def cast_results_to_vary(jaxpr: Jaxpr, axes: Sequence[frozenset]) -> Jaxpr:
    """Return `jaxpr` with its first results cast to vary over these axes too."""
    if all(mine <= a.vma for a, mine in zip(jaxpr.out_avals, axes)):
        return jaxpr

    def run(*args):
        outs = evaluate(jaxpr, *args)
        return [*map(cast, outs, axes), *outs[len(axes) :]]

    return jaxpr.memo(
        ("with axes", tuple(axes), axis_env()), lambda: stage(run, jaxpr.in_avals, jaxpr.name)
    )


def promote_weak(
    values: Sequence, in_avals: Sequence[ShapedArray], out_avals: Sequence[ShapedArray]
) -> list | None:
    """Return the initial carry with the types that the body returns, or None if no value changes.

    Weakly typed values (Python numbers) take the dtype that the body returns; values without an
    explicit sharding take the sharding that the body returns.
    """
    result, changed = list(values), False
    for i, (x, in_aval, out_aval) in enumerate(zip(values, in_avals, out_avals)):
        if in_aval.weak_type and in_aval.dtype != out_aval.dtype:
            dtype, _ = dtypes.join_dtypes(
                ((in_aval.dtype, True), (out_aval.dtype, out_aval.weak_type))
            )
            if dtype != in_aval.dtype:
                result[i], changed = to_strong_type(x, dtype), True
        if (
            in_aval.explicit is None
            and out_aval.explicit is not None
            and in_aval.shape == out_aval.shape
        ):
            result[i], changed = reshard_like(result[i], out_aval), True
    return result if changed else None


def to_strong_type(x: Any, dtype: Any) -> Any:
    """Return `x` with exactly the dtype `dtype`."""
    if isinstance(x, (bool, int, float, complex)):
        return np.asarray(x).astype(dtype)[()]

    return convert_element_type(x, dtype)
