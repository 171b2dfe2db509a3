"""What transformations make of objects that can be called, and of Python scalars."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp


class Layer:
    """Its fields are seen through transformations; a `__name__` that is not a string is no error."""

    def __init__(self):
        self.scale = 3.0
        self.__name__ = 7
        self.__annotations__ = None

    def __call__(self, x):
        return self.scale * x


@pytest.mark.parametrize(
    "transform",
    [weft.vmap, weft.grad, weft.value_and_grad, weft.jacfwd, weft.checkpoint, weft.make_jaxpr],
)
def test_transformed_functions_have_the_objects_fields(transform):
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


def test_docstrings_say_what_was_done_to_a_function():
    def area(r):
        """Return the area of a circle."""
        return r * r

    def bare(r):
        return r

    for transform, begin in (
        (weft.vmap, "Vectorized version of area"),
        (weft.grad, "Gradient of area"),
        (weft.jacfwd, "Jacobian of area"),
        (weft.value_and_grad, "Value and gradient of area"),
        (weft.jacrev, "Jacobian of area"),
    ):
        first, _, middle, _, original = transform(area).__doc__.split("\n")
        assert (
            first.startswith(begin)
            and middle == "Original documentation:"
            and original == "Return the area of a circle."
        )
        assert transform(bare).__doc__ is None and transform(area).__name__ == "area"
    assert weft.jit(area).__doc__ == "Return the area of a circle."


def test_asarray_gives_arrays_of_differentiated_numbers():
    for make in (wnp.asarray, wnp.array):
        out, tangent = weft.jvp(make, (1.0,), (2.0,))
        assert (
            isinstance(out, weft.Array)
            and isinstance(tangent, weft.Array)
            and out.weak_type
            and (out, tangent) == (1.0, 2.0)
        )
        assert isinstance(weft.grad(make)(1.0), weft.Array)
