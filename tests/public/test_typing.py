"""Types for annotations, and the distinctions that they make."""

import typing

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.typing import ArrayLike, DTypeLike


@pytest.mark.parametrize(
    "x, is_one",
    [
        (np.zeros(2), True),
        (np.float32(1), True),
        (True, True),
        (2, True),
        (1.5, True),
        (2j, True),
        ([1, 2], False),
        ("1", False),
        (None, False),
    ],
    ids=str,
)
def test_what_is_like_an_array(x, is_one):
    assert isinstance(x, ArrayLike) is is_one


def test_arrays_and_tracers_are_like_arrays():
    seen = []
    weft.jit(lambda x: seen.append(isinstance(x, ArrayLike)) or x)(wnp.arange(3))
    assert seen == [True] and isinstance(wnp.arange(3), ArrayLike)


def test_annotations_of_functions():
    def zeros(n: int, dtype: DTypeLike = "float32") -> ArrayLike:
        return wnp.zeros(n, dtype)

    assert (
        zeros.__annotations__ == {"n": int, "dtype": DTypeLike, "return": ArrayLike}
        and zeros(2, np.int32).dtype == np.int32
    )


@pytest.mark.parametrize("union", [ArrayLike, DTypeLike], ids=["ArrayLike", "DTypeLike"])
def test_unions_are_joined_with_names_of_types(union):
    assert typing.get_origin(union) is typing.Union
    assert typing.get_args(union | "Other")[-1] == typing.ForwardRef("Other")
    assert union | None == typing.Union[union, None]  # noqa: UP007
