# pyright: strict
"""weft in one file: tracing, derivatives, vmap, a compiler and a partitioner.

In:   Python functions of NumPy arrays.
Out:  their programs, derivatives and batched forms; programs compiled to loops over rows of NumPy
      arrays, also for a mesh of devices.
Laws: `weft/_engine` has the same names and the same design; NumPy is the only dependency; a layout never
      changes values.

Read it from top to bottom. Each part names the modules that it is a miniature of.
`tiny-weft.md` walks through the parts with examples.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import Any

import numpy as np

Value = Any  # a NumPy array, an `Array`, a number, or a tracer that stands for one of these
Values = Sequence[Value]
Params = dict[str, Any]
Fun = Callable[..., Any]
#: a rule that is written as a lambda of two, three or four arguments
Rule = (
    Callable[[Any, Any], Any] | Callable[[Any, Any, Any], Any] | Callable[[Any, Any, Any, Any], Any]
)

# --- 1. Types and programs: ir/types.py, ir/jaxpr.py, ir/text/jaxpr.py -------------------------


@dataclass(frozen=True)
class ShapedArray:
    """The type of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        name = self.dtype.name.replace("float", "f").replace("int", "i")
        return f"{name}[{','.join(map(str, self.shape))}]"


Avals = Sequence[ShapedArray]


def typeof(x: Value) -> ShapedArray:
    """Return the type of a value. Python numbers are float32."""
    if isinstance(x, ArrayMethods | Var):
        return x.aval
    array = np.asarray(x, np.float32 if type(x) in (int, float) else None)
    return ShapedArray(array.shape, array.dtype)


@dataclass(eq=False)
class Var:
    """A variable. Its identity is its name."""

    aval: ShapedArray


@dataclass(eq=False)
class Literal:
    """A scalar constant written in place."""

    val: Any
    aval: ShapedArray


Atom = Var | Literal


@dataclass(eq=False)
class Eqn:
    """`outvar = primitive[params] invars`."""

    primitive: Primitive
    invars: list[Atom]
    outvar: Var
    params: Params


@dataclass(eq=False)
class Jaxpr:
    """A closed, typed, pure program. Every variable is bound once, before use."""

    constvars: list[Var]
    consts: list[Value]
    invars: list[Var]
    outvars: list[Atom]
    eqns: list[Eqn]

    def __str__(self) -> str:
        """Return a program as text. Variables are a ... z, ba, bb, ..."""
        variables = [*self.constvars, *self.invars, *[eqn.outvar for eqn in self.eqns]]
        prefixes = ["", *ascii_lowercase[1:]]
        names = {v: prefixes[k // 26] + ascii_lowercase[k % 26] for k, v in enumerate(variables)}

        def binders(variables: list[Var]) -> str:
            return " ".join([f"{names[v]}:{v.aval}" for v in variables])

        def text(a: Atom) -> str:
            return names[a] if isinstance(a, Var) else f"{a.val!r}:{a.aval}"

        lines = [f"{{ lambda {binders(self.constvars)}; {binders(self.invars)}. let"]
        for eqn in self.eqns:
            params = [f"{key}={value!r}" for key, value in eqn.params.items()]
            name = eqn.primitive.name + (f"[{' '.join(params)}]" if params else "")
            lines.append(
                f"    {binders([eqn.outvar])} = {' '.join([name, *map(text, eqn.invars)])}"
            )
        outs = [text(a) + "," * (len(self.outvars) == 1) for a in self.outvars]
        return "\n".join([*lines, f"  in ({', '.join(outs)}) }}"])


# --- 2. Primitives and traces: core/primitive.py, core/trace.py, core/stage.py -----------------


registry: dict[str, Primitive] = {}


class Primitive:
    """An operation and its rules. `bind` applies it under the current trace.

    type(avals, params) -> the type of the result
    reference(arrays, params) -> the result, computed with NumPy: the meaning of the operation
    jvp(primals, tangents, params) -> the result and its tangent; a tangent that is zero is None
    transpose(ct, operands, params) -> a cotangent per operand; a linear operand is its `Var`
    factors(avals, params) -> a letter per dim: the rule of `batch` and of the partitioner
    bind_named(ins, out, operands, shape) -> the result for operands with these letters

    Methods of a subclass are rules of all its operations; keyword arguments are rules of one.
    """

    def __init__(self, name: str, **rules: Rule | Sequence[Rule | int] | bool):
        self.name = name
        self.__dict__.update(rules)
        registry[name] = self

    def __getattr__(self, rule: str) -> Any:
        raise NotImplementedError(f"primitive {self.name!r} has no {rule} rule.")

    def bind(self, *args: Value, **params: Any) -> Any:
        return trace_state.get().process(self, args, params)

    def batch(self, size: int, args: Values, dims: Values, params: Params) -> Any:
        """Compute all examples at once: the batch dim is one more factor, Z."""
        avals = [unbatched(x, d) for x, d in zip(args, dims)]
        rule, shape = self.factors(avals, params), (size, *self.type(avals, params).shape)
        ins = [names if d is None else "Z" + names for names, d in zip(rule.ins, dims)]
        return self.bind_named(ins, "Z" + rule.out, list(map(with_dim_first, args, dims)), shape), 0


@dataclass(eq=False)
class Trace:
    """An interpretation of primitives, within the interpretation `parent`."""

    parent: Any

    def process(self, primitive: Primitive, args: Values, params: Params) -> Any:
        """Compute at once: this class is the trace at the bottom."""
        return primitive.reference([np.asarray(x, typeof(x).dtype) for x in args], params)


eval_trace = Trace(None)


#: the current trace of each thread
trace_state: ContextVar[Trace] = ContextVar("trace_state", default=eval_trace)


@contextmanager
def set_trace(trace: Trace) -> Generator[None]:
    """Make `trace` current in a block."""
    token = trace_state.set(trace)
    try:
        yield
    finally:
        trace_state.reset(token)


class ArrayMethods:
    """What arrays and tracers have in common. Operators are attached in part 4."""

    aval: ShapedArray
    __array_ufunc__ = None  # NumPy leaves `array + tracer` to the tracer

    def __neg__(self) -> Value:
        return neg(self)

    def sum(self, axis: int | None = None) -> Value:
        names = letters(self.aval.ndim)
        return einsum([names], "" if axis is None else names.replace(names[axis], ""), [self], ())


@dataclass(eq=False)
class Tracer(ArrayMethods):
    """Stands for a value inside a transformation. It belongs to exactly one trace."""

    owning_trace: Trace
    aval: ShapedArray

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(f"{self.aval}: a traced value has no elements yet. Use functions of weft.")


@dataclass(eq=False)
class StageTracer(Tracer):
    """A value of the program that is being recorded."""

    variable: Var


@dataclass(eq=False)
class StageTrace(Trace):
    """Records primitives as equations. Arrays and values of other traces become constants."""

    eqns: list[Eqn] = field(default_factory=list[Eqn])
    constants: dict[int, tuple[Var, Value]] = field(default_factory=dict[int, tuple[Var, Value]])

    def new_arg(self, aval: ShapedArray) -> StageTracer:
        return StageTracer(self, aval, Var(aval))

    def atom(self, x: Value) -> Atom:
        if isinstance(x, StageTracer) and x.owning_trace is self:
            return x.variable
        aval = typeof(x)
        if aval.ndim == 0 and not isinstance(x, Tracer):
            return Literal(np.asarray(x, aval.dtype).item(), aval)
        return self.constants.setdefault(id(x), (Var(aval), x))[0]

    def process(self, primitive: Primitive, args: Values, params: Params) -> Any:
        atoms = [self.atom(x) for x in args]
        out = self.new_arg(primitive.type([a.aval for a in atoms], params))
        self.eqns.append(Eqn(primitive, atoms, out.variable, params))
        return out

    def to_jaxpr(self, args: Sequence[StageTracer], results: Values) -> Jaxpr:
        outvars, invars = [self.atom(x) for x in results], [t.variable for t in args]
        constvars, consts = [[pair[k] for pair in self.constants.values()] for k in (0, 1)]
        return Jaxpr(constvars, consts, invars, outvars, self.eqns)


def stage(fun: Fun, avals: Avals) -> Jaxpr:
    """Run a function of flat values on tracers and return the program of what it binds."""
    trace = StageTrace(trace_state.get())
    args = [trace.new_arg(aval) for aval in avals]
    with set_trace(trace):
        results = fun(*args)
    return trace.to_jaxpr(args, results)


def read(atom: Atom, env: dict[Atom, Value]) -> Value:
    return env.get(atom) if isinstance(atom, Var) else atom.aval.dtype.type(atom.val)


def evaluate(jaxpr: Jaxpr, args: Values) -> list[Value]:
    """Return the results of a program, whose equations are bound again."""
    env: dict[Atom, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*jaxpr.consts, *args]))
    for eqn in jaxpr.eqns:
        env[eqn.outvar] = eqn.primitive.bind(*[read(a, env) for a in eqn.invars], **eqn.params)
    return [read(a, env) for a in jaxpr.outvars]


# --- 3. Pytrees: util/tree.py, api/flat.py -----------------------------------------------------

#: (node type, keys, children); None for a leaf
PyTreeDef = tuple[Any, tuple[Any, ...], tuple[Any, ...]] | None


def tree_flatten(tree: Any) -> tuple[list[Any], PyTreeDef]:
    """Return the leaves of nested tuples, lists and dicts, in order, and their structure."""
    node_type: Any = tree.__class__
    if node_type not in (tuple, list, dict):
        return [tree], None
    keys = tuple(sorted(tree) if node_type is dict else range(len(tree)))
    leaves, children = zip(*[tree_flatten(tree[key]) for key in keys]) if keys else ((), ())
    return [x for xs in leaves for x in xs], (node_type, keys, tuple(children))


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """Return the tree of a structure with these leaves."""
    rest = iter(leaves)
    if treedef is None:
        return next(rest)
    values = [tree_unflatten(child, rest) for child in treedef[2]]
    return treedef[0](zip(treedef[1], values) if treedef[0] is dict else values)


@dataclass
class FlatFunction:
    """A function of the leaves of its arguments that returns the leaves of its results."""

    fun: Fun
    in_tree: PyTreeDef
    out_tree: PyTreeDef = None

    def __call__(self, *leaves: Value) -> list[Value]:
        results, self.out_tree = tree_flatten(self.fun(*tree_unflatten(self.in_tree, leaves)))
        return results


def make_jaxpr(fun: Fun) -> Callable[..., Jaxpr]:
    """Return a function that gives the program of `fun` for its arguments."""

    def make_jaxpr_f(*args: Any) -> Jaxpr:
        leaves, in_tree = tree_flatten(args)
        return stage(FlatFunction(fun, in_tree), [typeof(x) for x in leaves])

    return make_jaxpr_f


# --- 4. Operations: ops/, ir/factors.py --------------------------------------------------------


@dataclass(frozen=True)
class FactorRule:
    """An einsum over factors: a letter per dim of each operand, and per dim of the result.

    The op is linear in the operands `linear_ins`; jointly if `additive`, as a sum is.
    """

    ins: Sequence[str]
    out: str
    linear_ins: Sequence[int] = (0, 1)
    additive: bool = False


class ElementwiseOp(Primitive):
    """Computes an element of the result from the elements of the operands at its position.

    Operands have one shape, or rank 0. `compute` is the function of NumPy. `jvps` has a rule for
    each operand: (tangent, out, *operands) -> the tangent of the result that is due to the operand.
    A linear map of elements is its own transpose, so these are the rules of `transpose` too.
    """

    linear_ins: Sequence[int] = ()
    additive = False

    def __call__(self, *args: Value) -> Value:
        """Bind operands of one dtype and, unless they have rank 0, of one shape."""
        avals = [typeof(x) for x in args]
        dtypes = [a.dtype for x, a in zip(args, avals) if type(x) not in (int, float)]
        dtype = next(iter(dtypes), np.dtype(np.float32))
        typed = [dtype.type(x) if type(x) in (int, float) else x for x in args]
        shape = np.broadcast_shapes(*[a.shape for a in avals])
        return self.bind(*[broadcast_to(x, shape) if a.ndim else x for x, a in zip(typed, avals)])

    def type(self, avals: Avals, params: Params) -> ShapedArray:
        shapes = {a.shape for a in avals if a.ndim}
        if len(shapes) > 1 or len({a.dtype for a in avals}) > 1:
            raise TypeError(f"{self.name}: operands differ: {', '.join(map(str, avals))}.")
        return ShapedArray(next(iter(shapes), ()), avals[0].dtype)

    def reference(self, args: Values, params: Params) -> Value:
        return self.compute(*args)

    def jvp(self, primals: Values, tangents: Values, params: Params) -> tuple[Value, Value]:
        out, rules = self.bind(*primals), zip(self.jvps, tangents)
        terms = [rule(t, out, *primals) for rule, t in rules if t is not None]
        return out, broadcast_to(functools.reduce(add_any, terms), typeof(out).shape)

    def transpose(self, ct: Value, args: Values, params: Params) -> Values:
        cts = [f(ct, None, *args) if isinstance(x, Var) else None for f, x in zip(self.jvps, args)]
        return [
            y if y is None or x.aval.ndim else einsum([letters(typeof(ct).ndim)], "", [y], ())
            for x, y in zip(args, cts)
        ]

    def bind_named(
        self, ins: Sequence[str], out: str, operands: Values, shape: tuple[int, ...]
    ) -> Value:
        return self.bind(
            *[einsum([cs], out, [x], shape) if cs else x for cs, x in zip(ins, operands)]
        )

    def factors(self, avals: Avals, params: Params) -> FactorRule:
        out = letters(max([a.ndim for a in avals]))
        return FactorRule([out[: a.ndim] for a in avals], out, self.linear_ins, self.additive)


add = ElementwiseOp(
    "add",
    compute=np.add,
    jvps=[lambda t, out, x, y: t, lambda t, out, x, y: t],
    linear_ins=(0, 1),
    additive=True,
)
add_any = ElementwiseOp("add_any", compute=np.add, jvps=add.jvps, linear_ins=(0, 1), additive=True)
neg = ElementwiseOp("neg", compute=np.negative, jvps=[lambda t, out, x: neg(t)], linear_ins=(0,))
sub = ElementwiseOp(
    "sub",
    compute=np.subtract,
    jvps=[lambda t, out, x, y: t, lambda t, out, x, y: neg(t)],
    linear_ins=(0, 1),
    additive=True,
)
mul = ElementwiseOp(
    "mul",
    compute=np.multiply,
    jvps=[lambda t, out, x, y: mul(t, y), lambda t, out, x, y: mul(x, t)],
    linear_ins=(0, 1),
)
div = ElementwiseOp(
    "div",
    compute=np.divide,
    jvps=[lambda t, out, x, y: div(t, y), lambda t, out, x, y: mul(neg(t), div(out, y))],
    linear_ins=(0,),
)
square = ElementwiseOp("square", compute=np.square, jvps=[lambda t, out, x: mul(t, mul(2.0, x))])
sin = ElementwiseOp("sin", compute=np.sin, jvps=[lambda t, out, x: mul(t, cos(x))])
cos = ElementwiseOp("cos", compute=np.cos, jvps=[lambda t, out, x: neg(mul(t, sin(x)))])
exp = ElementwiseOp("exp", compute=np.exp, jvps=[lambda t, out, x: mul(t, out)])
log = ElementwiseOp("log", compute=np.log, jvps=[lambda t, out, x: div(t, x)])
tanh = ElementwiseOp(
    "tanh", compute=np.tanh, jvps=[lambda t, out, x: mul(t, sub(1.0, square(out)))]
)


class EinsumOp(Primitive):
    """Sums products of elements. Its factors imply its other rules."""

    def type(self, avals: Avals, params: Params) -> ShapedArray:
        rule = self.factors(avals, params)
        dims = {pair for names, a in zip(rule.ins, avals) for pair in zip(names, a.shape)}
        if len(dims) != len(dict(dims)):
            raise TypeError(f"{self.name}: dims differ: {', '.join(map(str, avals))}.")
        return replace(avals[0], shape=tuple([dict(dims)[c] for c in rule.out]))

    def reference(self, args: Values, params: Params) -> Value:
        rule = self.factors([typeof(x) for x in args], params)
        return np.einsum(f"{','.join(rule.ins)}->{rule.out}", *args, optimize=True)

    def jvp(self, primals: Values, tangents: Values, params: Params) -> tuple[Value, Value]:
        terms = [
            self.bind(*primals[:i], t, *primals[i + 1 :], **params)
            for i, t in enumerate(tangents)
            if t is not None
        ]
        return self.bind(*primals, **params), functools.reduce(add_any, terms)

    def transpose(self, ct: Value, args: Values, params: Params) -> Values:
        i, rule = int(not isinstance(args[0], Var)), self.factors(list(map(typeof, args)), params)
        others = [(names, x) for k, (names, x) in enumerate(zip(rule.ins, args)) if k != i]
        ins, operands = zip((rule.out, ct), *others)
        ct_of_i = einsum(ins, rule.ins[i], operands, typeof(args[i]).shape)
        return [ct_of_i if k == i else None for k in range(len(args))]

    def bind_named(
        self, ins: Sequence[str], out: str, operands: Values, shape: tuple[int, ...]
    ) -> Value:
        return einsum(ins, out, operands, shape)


class LayoutOp(EinsumOp):
    """Moves or repeats elements."""


class DotOp(EinsumOp):
    """Multiplies matrices. NumPy computes the whole result in one call."""


class BroadcastOp(LayoutOp):
    """Repeats elements along new dims."""

    def type(self, avals: Avals, params: Params) -> ShapedArray:
        if [params["shape"][d] for d in params["broadcast_dimensions"]] != list(avals[0].shape):
            raise NotImplementedError(
                f"broadcast_in_dim: {avals[0]}: dims of size 1 do not stretch."
            )
        return replace(avals[0], shape=params["shape"])

    def reference(self, args: Values, params: Params) -> Value:
        new_dims = {*range(len(params["shape"]))} - {*params["broadcast_dimensions"]}
        return np.broadcast_to(np.expand_dims(args[0], tuple(new_dims)), params["shape"])


def letters(count: int, start: int = 0) -> str:
    return ascii_lowercase[start : start + count]


def _dot_factors(avals: Avals, params: Params) -> FactorRule:
    """Pair letters by `dimension_numbers`: summed dims of both operands, then batch dims."""
    lhs, rhs = letters(avals[0].ndim), list(letters(avals[1].ndim, avals[0].ndim))
    for l, r in [pair for dims in params["dimension_numbers"] for pair in zip(*dims)]:
        rhs[r] = lhs[l]
    batch = [lhs[d] for d in params["dimension_numbers"][1][0]]
    free = [c for c in [*lhs, *rhs] if (c in lhs) != (c in rhs)]
    return FactorRule([lhs, "".join(rhs)], "".join([*batch, *free]))


broadcast_in_dim = BroadcastOp(
    "broadcast_in_dim",
    factors=lambda avals, p: FactorRule(
        ["".join([letters(len(p["shape"]))[d] for d in p["broadcast_dimensions"]])],
        letters(len(p["shape"])),
    ),
)
transpose_p = LayoutOp(
    "transpose",
    factors=lambda avals, p: FactorRule(
        [letters(avals[0].ndim)], "".join([letters(avals[0].ndim)[d] for d in p["permutation"]])
    ),
)
reduce_sum = EinsumOp(
    "reduce_sum",
    factors=lambda avals, p: FactorRule(
        [letters(avals[0].ndim)],
        "".join([c for d, c in enumerate(letters(avals[0].ndim)) if d not in p["axes"]]),
    ),
)
dot_general = DotOp("dot_general", factors=_dot_factors)


def einsum(ins: Sequence[str], out: str, operands: Values, shape: tuple[int, ...]) -> Value:
    """Return the sum of products of one or two operands with named dims, of `shape`."""
    x, names = operands[0], ins[0]
    if len(operands) == 2:
        shared = [c for c in names if c in ins[1]]
        groups = [[c for c in shared if c not in out], [c for c in shared if c in out]]
        numbers = [tuple([tuple([s.index(c) for c in cs]) for s in ins]) for cs in groups]
        x = dot_general.bind(*operands, dimension_numbers=tuple(numbers))
        names = "".join([*groups[1], *[c for c in ins[0] + ins[1] if c not in shared]])
    axes = tuple([d for d, c in enumerate(names) if c not in out])
    x = reduce_sum.bind(x, axes=axes) if axes else x
    present = [c for c in names if c in out]
    dims = tuple(sorted([out.index(c) for c in present]))
    x = transpose(x, tuple([present.index(out[d]) for d in dims]))
    return (
        x
        if len(dims) == len(out)
        else broadcast_in_dim.bind(x, broadcast_dimensions=dims, shape=shape)
    )


def broadcast_to(x: Value, shape: tuple[int, ...]) -> Value:
    """Return `x` repeated along new leading dims."""
    names = letters(len(shape))
    return einsum([names[len(shape) - typeof(x).ndim :]], names, [x], shape)


def transpose(x: Value, permutation: tuple[int, ...]) -> Value:
    is_sorted = list(permutation) == sorted(permutation)
    return x if is_sorted else transpose_p.bind(x, permutation=permutation)


def matmul(x: Value, y: Value) -> Value:
    """Return the product of matrices or vectors."""
    ins = "ab"[2 - typeof(x).ndim :], "bc"[: typeof(y).ndim]
    return einsum(ins, "".join(ins).replace("b", ""), [x, y], ())


for _name, _f in zip("add sub mul truediv matmul".split(), (add, sub, mul, div, matmul)):
    _methods: Sequence[Rule] = [lambda x, y, f=_f: f(x, y), lambda x, y, f=_f: f(y, x)]
    setattr(ArrayMethods, f"__{_name}__", _methods[0])
    setattr(ArrayMethods, f"__r{_name}__", _methods[1])

# --- 5. Derivatives: transforms/jvp.py, transforms/linearize.py, transforms/transpose.py -------


@dataclass(eq=False)
class PairTracer(Tracer):
    """Joins two values: a primal and its tangent, or a value and its batch dim."""

    first: Value
    second: Any


class PairTrace(Trace):
    """A trace of pairs. The second is None for a constant, such as a value of another trace."""

    #: (primitive, firsts, seconds, params) -> the pair of the result
    apply: Callable[[Primitive, Values, Values, Params], tuple[Value, Any]]

    def split(self, x: Value) -> tuple[Value, Any]:
        return (
            (x.first, x.second)
            if isinstance(x, PairTracer) and x.owning_trace is self
            else (x, None)
        )

    def aval_of(self, first: Value, second: Any) -> ShapedArray:
        return typeof(first)

    def join(self, first: Value, second: Any) -> Value:
        return (
            first
            if second is None
            else PairTracer(self, self.aval_of(first, second), first, second)
        )

    def process(self, primitive: Primitive, args: Values, params: Params) -> Any:
        firsts, seconds = zip(*map(self.split, args))
        with set_trace(self.parent):
            if all(second is None for second in seconds):
                return primitive.bind(*firsts, **params)
            return self.join(*self.apply(primitive, firsts, seconds, params))

    def run(self, fun: Fun, firsts: Values, seconds: Values) -> tuple[Values, Values]:
        """Return both halves of the results of flat `fun` on pairs."""
        with set_trace(self):
            pairs = [self.split(out) for out in fun(*map(self.join, firsts, seconds))]
        return [first for first, _ in pairs], [second for _, second in pairs]


class JVPTrace(PairTrace):
    """Pushes tangents along with primals. A tangent that is zero is None."""

    def apply(self, primitive: Primitive, firsts: Values, seconds: Values, params: Params) -> Any:
        return primitive.jvp(firsts, seconds, params)


class LinearTrace(StageTrace):
    """Records what depends on its own tracers; passes everything else to its parent."""

    def process(self, primitive: Primitive, args: Values, params: Params) -> Any:
        if any(isinstance(x, Tracer) and x.owning_trace is self for x in args):
            return super().process(primitive, args, params)
        return self.parent.process(primitive, args, params)


def linearize_flat(fun: Fun, primals: Values) -> tuple[Values, Jaxpr]:
    """Return the values of flat `fun`, and its derivative at this point as a linear program.

    The program maps tangents of the inputs to tangents of the results; one that is zero is the
    literal 0. Its constants are the residuals.
    """
    linear = LinearTrace(trace_state.get())
    tangents = [linear.new_arg(typeof(x)) for x in primals]
    values, out_tangents = JVPTrace(linear).run(fun, primals, tangents)
    return values, linear.to_jaxpr(tangents, [0.0 if t is None else t for t in out_tangents])


def backward_pass(jaxpr: Jaxpr, cts: Values) -> Values:
    """Return cotangents of the inputs of a linear program from cotangents of its results."""
    consts: dict[Atom, Value] = dict(zip(jaxpr.constvars, jaxpr.consts))
    sums: dict[Var, Value] = {}

    def accumulate(atom: Atom, ct: Value) -> None:
        if ct is not None and isinstance(atom, Var):
            sums[atom] = add_any(sums[atom], ct) if atom in sums else ct

    for atom, ct in zip(jaxpr.outvars, cts):
        accumulate(atom, ct)
    for eqn in reversed(jaxpr.eqns):
        if eqn.outvar in sums:
            values = [read(a, consts) for a in eqn.invars]
            operands = [a if x is None else x for a, x in zip(eqn.invars, values)]
            in_cts = eqn.primitive.transpose(sums.pop(eqn.outvar), operands, eqn.params)
            for atom, ct in zip(eqn.invars, in_cts):
                accumulate(atom, ct)
    return [
        sums[v] if v in sums else broadcast_to(np.zeros((), v.aval.dtype), v.aval.shape)
        for v in jaxpr.invars
    ]


def vjp(fun: Fun, *primals: Any) -> tuple[Any, Fun]:
    """Return `fun(*primals)`, and the function from its cotangent to cotangents of arguments."""
    leaves, in_tree = tree_flatten(primals)
    flat = FlatFunction(fun, in_tree)
    outs, program = linearize_flat(flat, leaves)

    def pullback(ct: Any) -> Any:
        return tree_unflatten(in_tree, backward_pass(program, tree_flatten(ct)[0]))

    return tree_unflatten(flat.out_tree, outs), pullback


def grad(fun: Fun) -> Fun:
    """Return the gradient of scalar `fun` by its first argument."""

    def grad_f(*args: Any) -> Any:
        value, pullback = vjp(lambda *first: fun(*first, *args[1:]), args[0])
        if typeof(value).ndim:
            raise TypeError(f"grad: the function must return a scalar, got {typeof(value)}.")
        return pullback(typeof(value).dtype.type(1))[0]

    return grad_f


# --- 6. Batching: transforms/batch.py, api/vmap.py ---------------------------------------------


@dataclass(eq=False)
class BatchTrace(PairTrace):
    """Computes all `size` examples at once. The second value of a pair is the batch dim."""

    size: int

    def aval_of(self, first: Value, second: Any) -> ShapedArray:
        return unbatched(first, second)

    def apply(self, primitive: Primitive, firsts: Values, seconds: Values, params: Params) -> Any:
        return primitive.batch(self.size, firsts, seconds, params)


def unbatched(x: Value, dim: int | None) -> ShapedArray:
    """Return the type of one example."""
    return replace(typeof(x), shape=tuple([n for d, n in enumerate(typeof(x).shape) if d != dim]))


def with_dim_first(x: Value, dim: Any) -> Value:
    return transpose(x, tuple(sorted(range(typeof(x).ndim), key=lambda d: d != dim)))


def vmap(fun: Fun, in_axes: int | tuple[int | None, ...] = 0) -> Fun:
    """Return `fun` mapped over a dim of each argument; None for an argument that is shared."""

    def vmap_f(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else [in_axes] * len(args)
        leaves, in_tree = tree_flatten(args)
        dims = [axis for x, axis in zip(args, axes) for _ in tree_flatten(x)[0]]
        size = next(typeof(x).shape[d] for x, d in zip(leaves, dims) if d is not None)
        flat = FlatFunction(fun, in_tree)
        outs, out_dims = BatchTrace(trace_state.get(), size).run(flat, leaves, dims)
        rows = [
            broadcast_to(with_dim_first(x, d), (size, *unbatched(x, d).shape))
            for x, d in zip(outs, out_dims)
        ]
        return tree_unflatten(flat.out_tree, rows)

    return vmap_f


# --- 7. The compiler: compiler/fusion, compiler/lowering, ir/loops.py, codegen/, api/jit.py ------


def factors_of(eqn: Eqn) -> FactorRule:
    return eqn.primitive.factors([a.aval for a in eqn.invars], eqn.params)


def simplify(jaxpr: Jaxpr) -> Jaxpr:
    """Drop unused equations."""
    live, eqns = set(jaxpr.outvars), list[Eqn]()
    for eqn in reversed(jaxpr.eqns):
        if eqn.outvar in live:
            live.update(eqn.invars)
            eqns.insert(0, eqn)
    return replace(jaxpr, eqns=eqns)


def block(head: str, body: Iterable[str], python: bool) -> list[str]:
    """Return a block of Python or of Loops."""
    return [head + (":" if python else " {"), *["    " + line for line in body], *["}"][python:]]


def nest(loops: Sequence[tuple[str, str, int]], body: list[str], python: bool) -> list[str]:
    for kind, var, extent in reversed(loops):
        head = f"for {var} in {kind}({extent})" if python else f"{kind} {var} in {extent}"
        body = block(head, body, python)
    return body


@dataclass
class Kernel:
    """A loop nest over scalars. For each of `rows` it stores `value`, or its sum over `columns`.

    A loop is "serial" or "vector", a variable, and its extent.
    """

    bufs: dict[Var, str]
    rows: list[tuple[str, str, int]]
    columns: list[tuple[str, str, int]]
    value: str

    def lines(self, python: bool) -> list[str]:
        """Return the text in Loops, or Python whose vector loops are rows of NumPy."""
        store = f"y[{', '.join([var for _, var, _ in self.rows]) or '()'}]"
        if not self.columns:
            return nest(self.rows, [f"{store} = {self.value}"], python)
        rows = f"np.add.reduce(np.broadcast_to({self.value}, {self.columns[-1][2]}))"
        body = nest(self.columns, [f"a += {rows if python else self.value}"], python)
        return nest(self.rows, ["a = 0.0", *body, f"{store} = a"], python)


class Fusion:
    """Decides which values are stored. Others are computed inside the kernels that read them."""

    def __init__(self, jaxpr: Jaxpr):
        self.producer = {eqn.outvar: eqn for eqn in jaxpr.eqns}
        reads = Counter([a for eqn in jaxpr.eqns for a in eqn.invars])
        calls = [eqn for eqn in jaxpr.eqns if isinstance(eqn.primitive, DotOp | CollectiveOp)]
        whole = {*jaxpr.outvars, *[a for eqn in calls for a in eqn.invars]}
        moved = {eqn.outvar for eqn in jaxpr.eqns if isinstance(eqn.primitive, LayoutOp)}
        once = {
            eqn.outvar
            for eqn in jaxpr.eqns
            if isinstance(eqn.primitive, ElementwiseOp) and reads[eqn.outvar] == 1
        }
        self.stored = [eqn for eqn in jaxpr.eqns if eqn.outvar not in (moved | once) - whole]
        self.memory = {*jaxpr.invars, *[eqn.outvar for eqn in self.stored]}

    def read(self, atom: Atom, index: Sequence[str], bufs: dict[Var, str]) -> str:
        """Return the scalar code for the element of a value at an index."""
        if isinstance(atom, Literal):
            return repr(atom.val)
        if atom in self.memory:
            return f"{bufs.setdefault(atom, f'x{len(bufs)}')}[{', '.join(index) or '()'}]"
        return self.compute(self.producer[atom], index, bufs)

    def compute(self, eqn: Eqn, index: Sequence[str], bufs: dict[Var, str]) -> str:
        rule, name = factors_of(eqn), eqn.primitive.name
        at, operands = dict(zip(rule.out, index)), zip(eqn.invars, rule.ins)
        args = [self.read(a, [at[c] for c in names], bufs) for a, names in operands]
        return args[0] if isinstance(eqn.primitive, LayoutOp) else f"{name}({', '.join(args)})"

    def lower(self, eqn: Eqn) -> Kernel:
        """Return the kernel that stores the result of an equation."""
        bufs, axes = dict[Var, str](), eqn.params.get("axes", ())
        shape = (eqn.invars[0] if axes else eqn.outvar).aval.shape
        index = "ijklmnop"[: len(shape)]
        value = self.read(eqn.invars[0], index, bufs) if axes else self.compute(eqn, index, bufs)
        order = [d for d in range(len(shape)) if d not in axes] + list(axes)
        loops = [("vector" if d == order[-1] else "serial", index[d], shape[d]) for d in order]
        return Kernel(bufs, loops[: len(loops) - len(axes)], loops[len(loops) - len(axes) :], value)


def generate(jaxpr: Jaxpr) -> tuple[str, str, Fun]:
    """Return the kernels in Loops, and the Python of the program of one device.

    The program is a generator. It yields (collective, operand, params) to communicate, and at the
    end (None, results, {}).
    """
    fusion, kernels, functions, body = Fusion(jaxpr), list[str](), list[str](), list[str]()
    inputs = {v: f"s{i}" for i, v in enumerate(jaxpr.invars)}
    slots = inputs | {eqn.outvar: f"b{k}" for k, eqn in enumerate(fusion.stored)}

    def operands(atoms: Iterable[Atom]) -> str:
        return ", ".join(
            [slots[a] if isinstance(a, Var) else f"np.{a.aval.dtype}({a.val})" for a in atoms]
        )

    for k, eqn in enumerate(fusion.stored):
        name, slot, aval = eqn.primitive.name, slots[eqn.outvar], eqn.outvar.aval
        if isinstance(eqn.primitive, CollectiveOp):
            body.append(f"{slot} = yield {name}, {operands(eqn.invars)}, {eqn.params}")
        elif isinstance(eqn.primitive, DotOp):
            body.append(f"{slot} = {name}.reference([{operands(eqn.invars)}], {eqn.params})")
        else:
            kernel = fusion.lower(eqn)
            bufs = ", ".join([f"in {buf}: {v.aval}" for v, buf in kernel.bufs.items()])
            head = f"kernel k{k}({bufs}, out y: {aval})"
            kernels += block(head, kernel.lines(python=False), python=False)
            head = f"def k{k}({', '.join([*kernel.bufs.values(), 'y'])})"
            functions += block(head, kernel.lines(python=True), python=True)
            body += [
                f"{slot} = np.empty({aval.shape}, '{aval.dtype}')",
                f"k{k}({operands([*kernel.bufs, eqn.outvar])})",
            ]
    body.append(f"yield None, [{operands(jaxpr.outvars)}], {{}}")
    head = f"def program({', '.join(inputs.values())})"
    source = "\n".join([*functions, *block(head, body, python=True)])
    vector: Callable[[int], list[Any]] = lambda extent: [
        slice(extent)
    ]  # one iteration for all elements
    scope: Params = {
        **{k: op.compute if isinstance(op, ElementwiseOp) else op for k, op in registry.items()},
        "np": np,
        "inf": np.inf,
        "nan": np.nan,
        "serial": range,
        "vector": vector,
    }
    exec(source, scope)
    return "\n".join(kernels), source, scope["program"]


def run_on_devices(program: Fun, args: Iterable[Values]) -> list[Values]:
    """Return the results of a program on each device. Devices stop at collectives to exchange."""
    devices = [program(*operands) for operands in args]
    requests = [next(device) for device in devices]
    while (collective := requests[0][0]) is not None:
        received = collective.exchange([operand for _, operand, _ in requests], requests[0][2])
        requests = [device.send(x) for device, x in zip(devices, received)]
    return [results for _, results, _ in requests]


def compile_request(jaxpr: Jaxpr, shardings: Sequence[NamedSharding | None]) -> tuple[Params, Fun]:
    """Return the program at every stage of its compilation, and the function that runs it."""
    # constants of the traced program are the first inputs of the compiled one
    local = simplify(
        replace(jaxpr, constvars=[], consts=[], invars=[*jaxpr.constvars, *jaxpr.invars])
    )
    placed: list[list[NamedSharding]] = []
    stages: Params = {"traced": jaxpr, "simplified": local}
    mesh = next((s.mesh for s in shardings if s), None)
    if mesh:
        local, *placed = partition(local, shardings, mesh)
        stages["shardings"] = " -> ".join([str([s.spec for s in ss]) for ss in placed])
        stages["local"] = local = simplify(local)
    stages["kernels"], stages["source"], program = generate(local)

    def run(args: Values) -> Values:
        if not mesh:
            return run_on_devices(program, [[np.asarray(x, typeof(x).dtype) for x in args]])[0]
        shards = [device_put(x, s).shards for x, s in zip(args, placed[0])]
        return list(map(Array, placed[1], zip(*run_on_devices(program, zip(*shards)))))

    return stages, run


@dataclass(eq=False)
class JitFunction:
    """A function that is traced for the types of its arguments, and compiled for their shardings.

    In a trace its program is evaluated, so that a transformation applies to its operations.
    """

    fun: Fun
    traces: dict[Any, Any] = field(default_factory=dict[Any, Any])
    calls: dict[Any, Any] = field(default_factory=dict[Any, Any])

    def lower(self, *args: Any) -> tuple[Params, Fun, Values, PyTreeDef]:
        """Return the stages, what runs the program, the operands, and the tree of the results."""
        leaves, in_tree = tree_flatten(args)
        types = in_tree, tuple([typeof(x) for x in leaves])
        jaxpr, out_tree = self.traces.get(types) or self.trace(*types)
        if trace_state.get() is not eval_trace:
            return {}, functools.partial(evaluate, jaxpr), leaves, out_tree
        operands = [*jaxpr.consts, *leaves]
        shardings = tuple([x.sharding if isinstance(x, Array) else None for x in operands])
        if (types, shardings) not in self.calls:
            self.calls[types, shardings] = compile_request(jaxpr, shardings)
        return *self.calls[types, shardings], operands, out_tree

    def trace(self, in_tree: PyTreeDef, avals: Avals) -> tuple[Jaxpr, PyTreeDef]:
        """Return the program and the tree of the results."""
        jaxpr = stage(flat := FlatFunction(self.fun, in_tree), avals)
        if not any(isinstance(x, Tracer) for x in jaxpr.consts):
            self.traces[in_tree, avals] = jaxpr, flat.out_tree
        return jaxpr, flat.out_tree

    def __call__(self, *args: Any) -> Any:
        _, run, operands, out_tree = self.lower(*args)
        return tree_unflatten(out_tree, run(operands))


jit = JitFunction


# --- 8. Sharding: ir/shardings.py, ops/collectives.py, partition/ --------------------------------


@dataclass(frozen=True)
class Mesh:
    """Devices along one axis."""

    size: int
    axis: str


def P(*entries: str | None) -> tuple[str | None, ...]:
    return entries


@dataclass(frozen=True)
class NamedSharding:
    """How an array is split: along the dim whose entry in `spec` is the mesh axis, if any."""

    mesh: Mesh
    spec: tuple[str | None, ...]

    @property
    def dim(self) -> int | None:
        return self.spec.index(self.mesh.axis) if self.mesh.axis in self.spec else None


class Array(ArrayMethods):
    """An array on a mesh: a list of one NumPy array per device."""

    def __init__(self, sharding: NamedSharding, shards: Values):
        self.sharding, self.shards = sharding, shards
        self.aval = typeof(np.asarray(self))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        dim = self.sharding.dim
        return np.asarray(
            self.shards[0] if dim is None else np.concatenate(self.shards, dim), dtype
        )


def device_put(x: Value, sharding: NamedSharding) -> Array:
    """Return an array that is split over a mesh."""
    if isinstance(x, Array) and x.sharding == sharding:
        return x
    whole, size, dim = np.asarray(x, typeof(x).dtype), sharding.mesh.size, sharding.dim
    return Array(sharding, [whole] * size if dim is None else np.split(whole, size, dim))


class CollectiveOp(Primitive):
    """Communicates. `exchange(operands, params)` maps the operands of all devices to results."""

    def type(self, avals: Avals, params: Params) -> ShapedArray:
        sizes = {params["dim"]: params["size"]} if "dim" in params else {}
        return replace(
            avals[0], shape=tuple([sizes.get(d, n) for d, n in enumerate(avals[0].shape)])
        )


psum = CollectiveOp("psum", exchange=lambda xs, p: [sum(xs)] * len(xs))
all_gather = CollectiveOp(
    "all_gather", exchange=lambda xs, p: [np.concatenate(xs, p["dim"])] * len(xs)
)
reduce_scatter = CollectiveOp(
    "reduce_scatter", exchange=lambda xs, p: np.split(sum(xs), len(xs), p["dim"])
)
own_slice = CollectiveOp(
    "own_slice",
    exchange=lambda xs, p: [np.split(x, len(xs), p["dim"])[i] for i, x in enumerate(xs)],
)


def chosen_factor(eqn: Eqn, dims: Sequence[int | None]) -> str:
    """Return the factor to split, given the split dims of the operands and of the result.

    Factors of the result win over summed ones, earlier operands over later ones; "" for none.
    """
    rule = factors_of(eqn)
    split = [cs[d] for cs, d in zip([*rule.ins, rule.out], dims) if d is not None]
    return min(split, key=lambda c: c not in rule.out, default="")


def propagate(jaxpr: Jaxpr, given: dict[Any, int | None], size: int) -> dict[Atom, int | None]:
    """Return the dim to split of each value. Given ones stay; others follow through factors.

    A layout passes from a value to its broadcast last: the values that it meets there are larger.
    """
    dims, count, sweep = dict(given), -1, [*jaxpr.eqns, *reversed(jaxpr.eqns)]
    sweep.sort(key=lambda eqn: isinstance(eqn.primitive, BroadcastOp))
    while count != len(dims):
        count = len(dims)
        for eqn in sweep:
            rule, atoms = factors_of(eqn), [*eqn.invars, eqn.outvar]
            c = chosen_factor(eqn, [dims.get(a) for a in atoms])
            for a, names in zip(atoms, [*rule.ins, rule.out]):
                if c and c in names and a not in dims and a.aval.shape[names.index(c)] % size == 0:
                    dims[a] = names.index(c)
    return dims


@dataclass(frozen=True)
class Placement:
    """The placement of a value on the mesh: the split dim, and whether devices hold terms of a sum."""

    dim: int | None = None
    partial: bool = False


def plan(source: Placement, target: Placement) -> list[tuple[CollectiveOp, Any]]:
    """Return the collectives that move a value between two placements, each with its dim."""
    if source == target:
        return []
    if source.partial:
        return [(psum, None) if target.dim is None else (reduce_scatter, target.dim)]
    gather = [] if source.dim is None else [(all_gather, source.dim)]
    return [*gather, *([] if target.dim is None else [(own_slice, target.dim)])]


class Partitioner:
    """Binds local operations for each equation. `forms` are the local values by placement."""

    def __init__(self, jaxpr: Jaxpr, dims: dict[Atom, int | None], mesh: Mesh):
        self.jaxpr, self.dims, self.mesh = jaxpr, dims, mesh
        self.reads = Counter([*jaxpr.outvars, *[a for eqn in jaxpr.eqns for a in eqn.invars]])
        self.forms: dict[Atom, dict[Placement, Value]] = {
            a: {Placement(): read(a, {})} for a in self.reads if isinstance(a, Literal)
        }

    def run(self, *args: Value) -> list[Value]:
        self.forms.update({v: {self.target(v): x} for v, x in zip(self.jaxpr.invars, args)})
        for eqn in self.jaxpr.eqns:
            self.forms[eqn.outvar] = self.compute(eqn)
        return [self.materialize(a, self.target(a)) for a in self.jaxpr.outvars]

    def target(self, atom: Atom) -> Placement:
        return Placement(self.dims.get(atom))

    def local(self, atom: Atom, place: Placement) -> ShapedArray:
        """Return the type of the local form of a value."""
        sizes = enumerate(atom.aval.shape)
        shape = tuple([n // self.mesh.size if d == place.dim else n for d, n in sizes])
        return replace(atom.aval, shape=shape)

    def materialize(self, atom: Atom, target: Placement) -> Value:
        """Return the local form of a value in a placement, made by collectives if it is new."""
        forms = self.forms[atom]
        source = min(forms, key=lambda place: len(plan(place, target)))
        x = forms[source]
        for collective, dim in plan(source, target):
            place = Placement(None if collective is all_gather else dim)
            params: Params = (
                {} if dim is None else {"dim": dim, "size": self.local(atom, place).shape[dim]}
            )
            x = forms[place] = collective.bind(x, axis=self.mesh.axis, **params)
        return x

    def compute(self, eqn: Eqn) -> dict[Placement, Value]:
        """Compute an equation; return the local form of its result."""
        ins, out = self.strategy(eqn)
        operands = [self.materialize(a, place) for a, place in zip(eqn.invars, ins)]
        shape = {"shape": self.local(eqn.outvar, out).shape} if "shape" in eqn.params else {}
        return {out: eqn.primitive.bind(*operands, **eqn.params | shape)}

    def strategy(self, eqn: Eqn) -> tuple[list[Placement], Placement]:
        """Return the placements of the operands and of the result.

        A factor that operands are split along is split. If it is one of the result, propagation
        decides which; a summed one gives a partial sum, which moves on to the target in one step.
        """
        rule, forms = factors_of(eqn), [next(iter(self.forms[a])) for a in eqn.invars]
        is_linear = rule.additive or (len(forms) == 1 and 0 in rule.linear_ins)
        if is_linear and all(p.partial and self.reads[a] == 1 for a, p in zip(eqn.invars, forms)):
            return forms, Placement(None, True)  # one reduction later serves all terms
        dims, target = [place.dim for place in forms], self.dims.get(eqn.outvar)
        c, wanted = (
            chosen_factor(eqn, [*dims, None]),
            chosen_factor(eqn, [*[None] * len(dims), target]),
        )
        c = wanted if wanted and (c in rule.out or not c) else c
        names, atoms = [*rule.ins, rule.out], [*eqn.invars, eqn.outvar]
        split = [cs.index(c) if c and c in cs else None for cs in names]
        if any(a.aval.shape[d] % self.mesh.size for a, d in zip(atoms, split) if d is not None):
            return [Placement()] * len(forms), Placement()
        return list(map(Placement, split[:-1])), Placement(split[-1], c not in rule.out)


def partition(
    jaxpr: Jaxpr, shardings: Sequence[NamedSharding | None], mesh: Mesh
) -> tuple[Jaxpr, Any, Any]:
    """Return the program of one device, and the shardings of its inputs and of its results."""
    dims = propagate(jaxpr, {v: s.dim for v, s in zip(jaxpr.invars, shardings) if s}, mesh.size)
    partitioner = Partitioner(jaxpr, dims, mesh)

    def sharding(a: Atom) -> NamedSharding:
        return NamedSharding(
            mesh, P(*[mesh.axis if d == dims.get(a) else None for d in range(a.aval.ndim)])
        )

    local = stage(
        partitioner.run, [partitioner.local(v, partitioner.target(v)) for v in jaxpr.invars]
    )
    return local, [sharding(v) for v in jaxpr.invars], [sharding(a) for a in jaxpr.outvars]
