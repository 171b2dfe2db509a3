"""Base utilities: pytrees, dtypes, configuration, errors, source lines and text layout.

This package imports nothing from the rest of weft; all other packages may import from it.
"""

from weft._engine.util import lazy

lazy.install()
