"""A dataclass as a pytree, updated by a compiled function."""

import dataclasses
import functools

import weft
import weft.numpy as wnp
from weft import tree_util


@functools.partial(
    tree_util.register_dataclass, data_fields=["position", "velocity"], meta_fields=["mass"]
)
@dataclasses.dataclass
class Body:
    position: weft.Array
    velocity: weft.Array
    mass: float = 1.0


@tree_util.register_pytree_node_class
class Interval:
    def __init__(self, low: weft.Array, high: weft.Array) -> None:
        self.low, self.high = low, high

    def tree_flatten(self) -> tuple[tuple[weft.Array, weft.Array], None]:
        return (self.low, self.high), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: tuple[weft.Array, weft.Array]) -> "Interval":
        return cls(*children)


@weft.jit
def advance(body: Body, force: weft.Array, dt: float) -> Body:
    velocity = body.velocity + dt * force / body.mass
    return dataclasses.replace(body, position=body.position + dt * velocity, velocity=velocity)


body = Body(wnp.zeros(2), wnp.ones(2))
for _ in range(3):
    body = advance(body, wnp.array([0.0, -9.8]), 0.1)
interval = weft.jit(lambda i: Interval(i.low - 1, i.high + 1))(
    Interval(wnp.zeros(()), wnp.ones(()))
)
leaves, structure = tree_util.tree_flatten(body)
print(body.position.shape, len(leaves), structure.num_leaves, float(interval.high))
