"""A part of SciPy's API on global arrays; each submodule is loaded on first use."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        __name__: "cluster fft integrate interpolate linalg ndimage optimize signal sparse spatial special stats",
    },
)
