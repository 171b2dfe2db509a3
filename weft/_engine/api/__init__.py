"""The public transformations and placement functions: jit, grad, vmap, shard_map, pmap, device_put and so on.

In:   user functions, trees of arrays and numbers, and layouts: shardings, specs, devices.
Out:  functions and arrays. `weft` loads each name on first use.
Laws: a function is traced once per types of arguments; a call on values goes through `programs` to an executable. No module here depends
      on the backend: executables, arrays and devices provide what differs.
Next: `jit` for the way from a call to a program, `execute` for running one, `layouts` for user-specified shardings, `stages` for
      `lower` and `compile`.
"""

import weft

# A hook upward: arrays and tracers get their operators and methods from `weft.numpy`, whichever module is imported first.
weft.numpy  # noqa: B018  (loads it)
