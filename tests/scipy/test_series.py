"""The stored Chebyshev series of special functions equal newly fitted ones."""

import importlib
import subprocess
import sys

import numpy as np

from weft._engine.scipy.special import fits
from weft.tools import series


def test_the_stored_terms_are_those_of_the_functions():
    for module in series.MODULES:
        importlib.import_module(module)
    lines = fits.STORED.read_text().splitlines()
    assert [line.partition(": ")[0] for line in lines] == sorted(fits.known), (
        "python -m weft.tools.series"
    )
    for name, chebyshev in fits.known.items():
        stored, fitted = (
            np.pad(terms, (0, 96 - len(terms))) for terms in (chebyshev.terms, chebyshev.fit())
        )
        np.testing.assert_allclose(
            stored, fitted, rtol=0, atol=4e-16 * np.abs(fitted).max(), err_msg=name
        )


def test_a_series_that_is_not_stored_is_fitted(monkeypatch):
    monkeypatch.setattr(fits, "known", {})
    x = np.linspace(-1, 3, 50, dtype=np.float32)
    np.testing.assert_allclose(
        fits.make_piecewise_series("cubes", lambda x: x**3, -1.0, 0.5, 3.0)(x),
        x**3,
        rtol=1e-6,
        atol=1e-6,
    )
    assert [*fits.known] == ["cubes[-1,0.5]", "cubes[0.5,3]"]


def test_first_calls_do_without_scipy():
    text = """
import sys
from weft.scipy import special
for name in ("dawsn", "erfcx", "exp1", "expi", "fresnel", "sici", "spence"):
    getattr(special, name)(0.7)
print([name for name in sys.modules if name.startswith("scipy.special")])
"""
    assert (
        subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )
