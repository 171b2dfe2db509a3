"""The Chebyshev series of special functions: `python -m weft.tools.series` fits them to SciPy's
values and writes their terms.

In:   the series that the modules of `weft.scipy` define.
Out:  `weft/scipy/special/series.txt`, one line per series. tests/scipy/test_series.py fails when it
      is outdated.
"""

from __future__ import annotations

import importlib

from weft._engine.scipy.special import fits

MODULES = "weft._engine.scipy.special.integrals", "weft.scipy.stats.vonmises"  # modules with series


def main() -> None:
    """Write the terms of all series."""
    for module in MODULES:
        importlib.import_module(module)
    fits.STORED.write_text(
        "".join(
            [
                f"{name}: {' '.join(map(repr, series.fit()))}\n"
                for name, series in sorted(fits.known.items())
            ]
        )
    )


if __name__ == "__main__":
    main()
