"""Dtype arguments: weft's names, NumPy's, strings and Python types."""

import numpy as np

import weft
import weft.numpy as wnp
from weft import random
from weft.typing import ArrayLike, DTypeLike


def ones(shape: tuple[int, ...], dtype: DTypeLike = wnp.float32) -> weft.Array:
    return wnp.ones(shape, dtype)


def as_half(x: ArrayLike) -> weft.Array:
    return wnp.asarray(x).astype(wnp.bfloat16)


arrays = [
    ones((2, 3)),
    ones((2, 3), "int32"),
    ones((2, 3), np.float32),
    ones((2, 3), np.dtype("uint8")),
    ones((2, 3), bool),
    ones((2, 3), arrays_dtype := wnp.int8),
    wnp.zeros(3, dtype=int),
    wnp.full((2,), 7, dtype=wnp.int32),
    random.randint(random.key(0), (2,), 0, 5, dtype=wnp.int32),
]
print([str(x.dtype) for x in arrays], arrays_dtype == np.int8)
print(as_half(2.5).dtype == wnp.bfloat16, wnp.float32(3).dtype.itemsize)
print(wnp.finfo(wnp.float32).max > 1e30, wnp.iinfo("int8").max)
print(wnp.issubdtype(arrays[0].dtype, wnp.floating), wnp.result_type(1.0, wnp.int8))
print(wnp.promote_types("int8", "float32").name, wnp.uint8(200) + wnp.uint8(1))
