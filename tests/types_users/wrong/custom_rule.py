"""Only one half of a reverse-mode rule."""

import weft
import weft.numpy as wnp


@weft.custom_vjp
def double(x: weft.Array) -> weft.Array:
    return 2 * x


def forward(x: weft.Array) -> tuple[weft.Array, None]:
    return double(x), None


double.defvjp(forward)  # error
print(double(wnp.ones(2)))
