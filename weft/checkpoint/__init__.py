"""Checkpoints: trees of arrays saved to files, and restored onto any mesh and any number of processes.

`save` is asynchronous, and a step is complete or absent; `restore` reads what each process needs. The files are zarr arrays in
orbax's layout: each library reads the other's files. They need tensorstore: `pip install 'weft-arrays[checkpoint]'`.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     for step in range(3):
...         saving = weft.checkpoint.save(folder, {"w": wnp.full(2, step)}, step, keep=2)
...     _ = saving.wait()
...     weft.checkpoint.steps(folder), weft.checkpoint.restore(folder, {"w": wnp.zeros(2, int)})
([1, 2], {'w': Array([2, 2], dtype=int32)})

The package is also a function: `weft.checkpoint(fun)` is `weft.remat(fun)`, which recomputes intermediate values in the backward pass.
It propagates the errors of `fun`.

>>> float(weft.grad(weft.checkpoint(lambda x: wnp.sin(wnp.sin(x))))(0.0))
1.0
"""

import sys
from typing import Any

from weft._engine.util.lazy import LazyModule, attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft.checkpoint.saving": "Save save wait",
        "weft.checkpoint.restoring": "metadata restore verify",
        "weft.checkpoint.listing": "delete latest_step steps",
        "weft.checkpoint.tensor_files": "export_safetensors import_safetensors",
    },
)


class _Package(LazyModule):
    """This package as a callable module."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from weft._engine.api.checkpointing import checkpoint

        return checkpoint(*args, **kwargs)


sys.modules[__name__].__class__ = _Package
