"""The functions that take functions, and those that place arrays: jit, grad, vmap, shard_map, pmap, device_put and so on.

In:   functions of users, trees of arrays and numbers, and layouts: shardings, specs, devices.
Out:  functions and arrays. `weft` loads each name on first use.
Laws: a function is traced once per kind of arguments; a call on values goes through `programs` to an executable. Nothing here knows
      which backend runs a program: executables, arrays and devices are asked.
Next: `jit` for the way from a call to a program, `execute` for running one, `layouts` for shardings as users give them, `stages` for
      `lower` and `compile`.
"""

import weft

# A hook upward: arrays and tracers get their operators and methods from `weft.numpy`, whichever module was asked for.
weft.numpy  # noqa: B018  (loads it)
