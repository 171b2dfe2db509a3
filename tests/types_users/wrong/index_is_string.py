"""An array indexed by a string."""

import weft
import weft.numpy as wnp

batch: dict[str, weft.Array] = {"image": wnp.ones((2, 4))}
first = batch["image"][0]
print(first.shape)
print(batch["image"]["label"].shape)  # error
