"""A scan whose body takes one argument."""

import weft
import weft.numpy as wnp
from weft import lax


def body(carry: weft.Array) -> tuple[weft.Array, weft.Array]:
    return carry + 1, carry


total, steps = lax.scan(body, wnp.zeros(()), None, length=3)  # error
print(total, steps)
