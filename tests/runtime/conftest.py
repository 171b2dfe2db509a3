"""A mesh and an array that it splits."""

import numpy as np
import pytest

import weft
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))


@pytest.fixture
def split(mesh):
    """Return an 8×4 array in eight blocks of 2×2, and its value."""
    value = np.arange(32, dtype=np.float32).reshape(8, 4)
    return weft.device_put(value, NamedSharding(mesh, P("x", "y"))), value
