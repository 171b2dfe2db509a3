"""NumPy's discrete Fourier transforms."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.numpy.fft": """
        fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftfreq rfftn
    """,
    },
    guards=True,
)
