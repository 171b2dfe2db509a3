"""Implementation of `weft.numpy`."""

import weft._engine.api  # noqa: F401  (has weft.numpy loaded, which attaches the methods of arrays, before any module here)
