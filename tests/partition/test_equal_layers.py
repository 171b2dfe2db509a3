"""Equal layers of a program are thought about once."""

from __future__ import annotations

import numpy as np

import weft
import weft.numpy as wnp
from weft.partition import choices, spmd
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P


def made_for(layers: int, monkeypatch) -> int:
    """How many equations had their candidates sought, in the training step of so many equal layers."""
    made = []

    class Counted(choices.Candidates):
        def __init__(self, *args):
            made.append(1)
            super().__init__(*args)

    monkeypatch.setattr(spmd, "Candidates", Counted)

    def loss(weights, x):
        for w in weights:
            x = x + wnp.tanh(x @ w)
        return (x * x).sum()

    mesh = Mesh(np.array(weft.devices()[:4]), ("a",))
    x = weft.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("a")))
    weights = weft.device_put([np.eye(16, dtype=np.float32)] * layers, NamedSharding(mesh, P()))
    weft.jit(weft.grad(loss)).lower(weights, x).compile()
    return len(made)


def test_candidates_do_not_grow_with_the_number_of_layers(monkeypatch):
    few, many = (made_for(layers, monkeypatch) for layers in (6, 18))
    assert 0 < few == many
