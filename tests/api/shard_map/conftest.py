"""A mesh of eight devices, and execution with and without `jit`."""

import pytest

import weft
from weft.sharding import make_mesh


@pytest.fixture(scope="module")
def mesh():
    return make_mesh((4, 2), ("i", "j"))


@pytest.fixture(params=["eager", "jit"])
def mode(request):
    return weft.jit if request.param == "jit" else lambda f: f
