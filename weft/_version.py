"""The name and the version of weft's distribution, alone so that packaging can read them without importing anything.

`pip install` takes the distribution's name; PyPI's `weft` is another project. pyproject.toml repeats the name.
"""

DISTRIBUTION_NAME = "weft-arrays"
__version__ = "0.1.0"
