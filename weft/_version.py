"""The name and version of weft's distribution, in a separate module so that packaging reads them without other imports.

The distribution's name is the argument of `pip install`; PyPI's `weft` is another project. pyproject.toml repeats it.
"""

DISTRIBUTION_NAME = "weft-arrays"
__version__ = "0.1.0"
