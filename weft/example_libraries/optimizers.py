"""Optimizers for examples: triples of functions that start a state from parameters, update it with gradients, and read parameters back.

In:  step sizes, numbers or schedules (functions of the step), and a tree of parameters.
Out: an `Optimizer` (init_fn, update_fn, params_fn); the state is a tree that jit, grad and scan carry like any other.
Laws: a rule is written for one array, `optimizer` lifts it to trees. A state keeps one tuple of arrays for each parameter.

>>> init, update, params = momentum(0.1, mass=0.5)
>>> state = init({"w": wnp.array([1.0, 2.0])})
>>> for step in range(2):
...     state = update(step, {"w": wnp.array([1.0, 1.0])}, state)
>>> params(state)["w"]
Array([0.75, 1.75], dtype=float32)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import weft.numpy as wnp
from weft import tree_util
from weft._engine.util import tree
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import api_boundary

__all__ = [
    "JoinPoint", "Optimizer", "OptimizerState", "Schedule", "adagrad", "adam", "adamax", "clip_grads", "constant", "exponential_decay",
    "inverse_time_decay", "l2_norm", "make_schedule", "momentum", "nesterov", "optimizer", "pack_optimizer_state", "piecewise_constant",
    "polynomial_decay", "rmsprop", "rmsprop_momentum", "sgd", "sm3", "unpack_optimizer_state",
]  # fmt: skip

Schedule = Callable[[Any], Any]
StepSize = float | Schedule
#: init, update and params of one array
Rule = tuple[Callable[[Any], Any], Callable[[Any, Any, Any], Any], Callable[[Any], Any]]


class OptimizerState(NamedTuple):
    """The states of all parameters, their leaves flat, with the structure of the parameters and the structure of each parameter's state."""

    packed_state: Any
    tree_def: Any
    subtree_defs: Any


tree_util.register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda structure, children: OptimizerState(*children, *structure),
)


class Optimizer(NamedTuple):
    """`init_fn(params)` gives a state, `update_fn(step, grads, state)` the next one, `params_fn(state)` its parameters."""

    init_fn: Callable[[Any], OptimizerState]
    update_fn: Callable[[Any, Any, OptimizerState], OptimizerState]
    params_fn: Callable[[OptimizerState], Any]


class JoinPoint:
    """Marks the root of one parameter's state in a tree that `unpack_optimizer_state` returns; a leaf to tree functions."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Any:
        yield self.subtree


def optimizer(opt_maker: Callable[..., Rule]) -> Callable[..., Optimizer]:
    """Lift a maker of rules for one array to a maker of optimizers of trees.

    `opt_maker` returns three functions: from an array to its state, from (step, gradient, state) to the next state, and from a state
    to the array. Gradients with another structure than the parameters, and states of another form than the first, raise a TypeError.
    """

    @functools.wraps(opt_maker)
    def make(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        @api_boundary
        def init_fn(params: Any) -> OptimizerState:
            leaves, structure = tree_util.tree_flatten(params)
            return _pack([init(leaf) for leaf in leaves], structure)

        @api_boundary
        def update_fn(step: Any, grads: Any, state: OptimizerState) -> OptimizerState:
            leaves, structure = tree_util.tree_flatten(grads)
            if structure != state.tree_def:
                raise TypeError(
                    f"the optimizer got gradients (grads) with the structure {structure}, but its parameters have {state.tree_def}; "
                    "pass one gradient for each parameter, as weft.grad returns them"
                    f"{tree.describe_difference(state.tree_def, structure, 'parameters', 'gradients')}"
                )
            new = _pack(
                [update(step, leaf, old) for leaf, old in zip(leaves, _states(state), strict=True)],
                structure,
            )
            for before, after in zip(state.subtree_defs, new.subtree_defs, strict=True):
                if before != after:
                    raise TypeError(
                        f"update_fn turned a state of structure {before} into {after}; return the same structure"
                        f"{tree.describe_difference(before, after, 'before', 'after')}"
                    )
            return new

        @api_boundary
        def params_fn(state: OptimizerState) -> Any:
            return tree_util.tree_unflatten(
                state.tree_def, [get_params(part) for part in _states(state)]
            )

        return Optimizer(init_fn, update_fn, params_fn)

    return make


def _pack(states: list[Any], structure: Any) -> OptimizerState:
    """The state of a tree of parameters, from the states of its leaves."""
    flat = [tree_util.tree_flatten(state) for state in states]
    return OptimizerState(
        tuple(tuple(leaves) for leaves, _ in flat), structure, tuple(form for _, form in flat)
    )


def _states(state: OptimizerState) -> list[Any]:
    """The states of the leaves, each in its own structure."""
    return [
        tree_util.tree_unflatten(form, leaves)
        for form, leaves in zip(state.subtree_defs, state.packed_state, strict=True)
    ]


@optimizer
def sgd(step_size: StepSize) -> Rule:
    """Gradient descent: `x - a g`."""
    rate = make_schedule(step_size)
    return (lambda x: x), (lambda i, g, x: x - rate(i) * g), (lambda x: x)


@optimizer
def momentum(step_size: StepSize, mass: float) -> Rule:
    """Gradient descent with momentum (Polyak, 1964): the velocity `v = mass v + g`, then `x - a v`."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * velocity, velocity

    return _with_zeros(1), update, _first


@optimizer
def nesterov(step_size: StepSize, mass: float) -> Rule:
    """Accelerated gradient descent (Nesterov, 1983): the velocity `v = mass v + g`, then `x - a (mass v + g)`."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * (mass * velocity + g), velocity

    return _with_zeros(1), update, _first


@optimizer
def adagrad(step_size: StepSize, momentum: float = 0.9) -> Rule:
    """Steps divided by the root of the sum of all squared gradients (Duchi, Hazan & Singer, 2011), averaged with `momentum`."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, average = state
        squares = squares + wnp.square(g)
        average = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * average
        return x - rate(i) * average, squares, average

    return _with_zeros(2), update, _first


@optimizer
def rmsprop(step_size: StepSize, gamma: float = 0.9, eps: float = 1e-8) -> Rule:
    """Steps divided by the root of a running mean of squared gradients (Tieleman & Hinton, 2012)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean = state
        mean = gamma * mean + (1.0 - gamma) * wnp.square(g)
        return x - rate(i) * g / wnp.sqrt(mean + eps), mean

    return _with_zeros(1), update, _first


@optimizer
def rmsprop_momentum(
    step_size: StepSize, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9
) -> Rule:
    """`rmsprop`, its steps accumulated with `momentum`."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, velocity = state
        mean = gamma * mean + (1.0 - gamma) * wnp.square(g)
        velocity = momentum * velocity + rate(i) * g / wnp.sqrt(mean + eps)
        return x - velocity, mean, velocity

    return _with_zeros(2), update, _first


@optimizer
def adam(step_size: StepSize, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Rule:
    """Running means of gradients and of their squares, both corrected for their start at zero (Kingma & Ba, 2015)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, first, second = state
        first = b1 * first + (1 - b1) * g
        second = b2 * second + (1 - b2) * wnp.square(g)
        mean = first / (1 - wnp.asarray(b1, first.dtype) ** (i + 1))
        spread = second / (1 - wnp.asarray(b2, first.dtype) ** (i + 1))
        return x - rate(i) * mean / (wnp.sqrt(spread) + eps), first, second

    return _with_zeros(2), update, _first


@optimizer
def adamax(step_size: StepSize, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Rule:
    """`adam` with a decaying maximum of the gradients' size instead of their mean square (Kingma & Ba, 2015, section 7.1)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, largest = state
        mean = b1 * mean + (1 - b1) * g
        largest = wnp.maximum(b2 * largest, wnp.abs(g))
        corrected = rate(i) / (1 - wnp.asarray(b1, mean.dtype) ** (i + 1))
        return x - corrected * mean / (largest + eps), mean, largest

    return _with_zeros(2), update, _first


@optimizer
def sm3(step_size: StepSize, momentum: float = 0.9) -> Rule:
    """`adagrad` in little memory: of the squared gradients one vector for each dim is kept (Anil, Gupta, Koren & Singer, 2019)."""
    rate = make_schedule(step_size)

    def along(vector: Any, dim: int, ndim: int) -> Any:
        return vector.reshape([-1 if d == dim else 1 for d in range(ndim)])

    def init(x: Any) -> Any:
        x = wnp.asarray(x)
        return x, wnp.zeros_like(x), [wnp.zeros(size, x.dtype) for size in x.shape or (1,)]

    def update(i: Any, g: Any, state: Any) -> Any:
        x, average, bounds = state
        if x.ndim:
            bound = functools.reduce(
                wnp.minimum, [along(vector, dim, x.ndim) for dim, vector in enumerate(bounds)]
            )
        else:
            bound = bounds[0][0]
        squares = bound + wnp.square(g)
        average = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * average
        bounds = (
            [squares.max([d for d in range(x.ndim) if d != dim]) for dim in range(x.ndim)]
            if x.ndim
            else [squares.reshape(1)]
        )
        return x - rate(i) * average, average, bounds

    return init, update, _first


def _with_zeros(count: int) -> Callable[[Any], Any]:
    """Return an init that adds `count` arrays of zeros to the parameter."""
    return lambda x: (x, *(wnp.zeros_like(x) for _ in range(count)))


def _first(state: Any) -> Any:
    return state[0]


def _inverse_root(squares: Any) -> Any:
    """1 / √squares, and 0 where no gradient has come yet."""
    is_positive = squares > 0
    return wnp.where(is_positive, 1.0 / wnp.sqrt(wnp.where(is_positive, squares, 1.0)), 0.0)


def constant(step_size: Any) -> Schedule:
    """The same step size at every step."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """`step_size · decay_rate^(i / decay_steps)`."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False
) -> Schedule:
    """`step_size / (1 + decay_rate · i / decay_steps)`, the quotient rounded down where `staircase` is set.

    >>> [float(inverse_time_decay(1.0, 2, 0.5, staircase=True)(i)) for i in (0, 1, 2)]
    [1.0, 1.0, 0.6666666865348816]
    """
    rounded = wnp.floor if staircase else wnp.asarray
    return lambda i: step_size / (1 + decay_rate * rounded(i / decay_steps))


def polynomial_decay(
    step_size: Any, decay_steps: Any, final_step_size: Any, power: Any = 1.0
) -> Schedule:
    """From `step_size` to `final_step_size` in `decay_steps` steps as `(1 - i / decay_steps)^power`, then constant."""

    def schedule(i: Any) -> Any:
        fraction = (1 - wnp.minimum(i, decay_steps) / decay_steps) ** power
        return final_step_size + fraction * (step_size - final_step_size)

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """`values[k]` at the steps past exactly k of the `boundaries`: both are vectors, the values one more than the boundaries.

    >>> schedule = piecewise_constant([10, 20], [1.0, 0.5, 0.25])
    >>> [float(schedule(i)) for i in (10, 11, 21)]
    [1.0, 0.5, 0.25]
    """
    boundaries, values = wnp.asarray(boundaries), wnp.asarray(values)
    if boundaries.ndim != 1 or values.ndim != 1:
        raise ValueError(
            f"boundaries and values must be vectors; they have the shapes {boundaries.shape} and {values.shape}"
        )
    if values.size != boundaries.size + 1:
        raise ValueError(
            f"values must be one more than boundaries; there are {quantity(values.size, 'value')} and {quantity(boundaries.size, 'boundary')}"
        )
    return lambda i: values[wnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule: StepSize) -> Schedule:
    """Return a schedule as it is, or the constant schedule of a number; raise TypeError for other arguments."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if wnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(
        f"a step size must be a scalar or a function of the step; it is {type(scalar_or_schedule).__name__}"
    )


def l2_norm(tree: Any) -> Any:
    """The square root of the sum of all squares in a tree of arrays.

    >>> float(l2_norm([wnp.array(3.0), {"b": wnp.array([4.0])}]))
    5.0
    """
    return wnp.sqrt(sum(wnp.vdot(leaf, leaf) for leaf in tree_util.tree_leaves(tree)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """The gradients, scaled down together where their `l2_norm` exceeds `max_norm`."""
    norm = l2_norm(grad_tree)
    return tree_util.tree_map(
        lambda g: wnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree
    )


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The state as a tree of the parameters' structure, with a `JoinPoint` for each parameter: a form to store."""
    return tree_util.tree_unflatten(
        opt_state.tree_def, [JoinPoint(state) for state in _states(opt_state)]
    )


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The state of a tree that `unpack_optimizer_state` returned."""
    points, structure = tree_util.tree_flatten(marked_pytree)
    for point in points:
        if not isinstance(point, JoinPoint):
            raise TypeError(
                f"marked_pytree must have a JoinPoint for each parameter; it has a leaf of type {type(point).__name__}"
            )
    return _pack([point.subtree for point in points], structure)
