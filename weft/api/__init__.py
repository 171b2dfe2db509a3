"""Functions of users turned into programs: jit, grad, vmap and their kin, a module for each; `weft` offers them lazily."""

import importlib

# The one hook upward: arrays and tracers get their operators and methods from the numpy face, whichever module was asked for.
importlib.import_module("weft.numpy")
