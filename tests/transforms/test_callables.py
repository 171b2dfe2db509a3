"""What transformations make of objects that can be called, and of Python scalars."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp


class Layer:
    """Its fields are seen through transformations; that its `__name__` is not a string disturbs nobody."""

    def __init__(self):
        self.scale = 3.0
        self.__name__ = 7
        self.__annotations__ = None

    def __call__(self, x):
        return self.scale * x


@pytest.mark.parametrize("transform", [weft.vmap, weft.grad, weft.value_and_grad, weft.jacfwd, weft.checkpoint, weft.make_jaxpr])
def test_the_fields_of_an_object_are_attributes_of_the_transformed_function(transform):
    assert transform(Layer()).scale == 3.0


def test_an_object_is_mapped():
    assert weft.vmap(Layer())(wnp.arange(2.0)).tolist() == [0.0, 3.0]


def test_python_scalars_stay_python_scalars_under_jvp():
    assert weft.jvp(lambda x: x, (1.0,), (2.0,)) == (1.0, 2.0)

    @weft.custom_jvp
    def shifted(x):
        return x + 1

    @shifted.defjvp
    def _(primals, tangents):
        assert isinstance(primals[0], float) and isinstance(tangents[0], float)
        return primals[0] + 1, tangents[0] ** 2

    out, tangent = weft.jvp(shifted, (1.0,), (3.0,))
    assert (out, tangent) == (2.0, 9.0) and isinstance(tangent, float)


def test_tangents_of_integers_under_jit():
    out, tangent = weft.jvp(weft.jit(lambda n: n + 1), (2,), (np.zeros((), weft.float0),))
    assert int(out) == 3 and tangent.dtype == weft.float0
