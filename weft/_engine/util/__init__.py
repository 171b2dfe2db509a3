"""Ground floor: pytrees, dtypes, configuration, errors, source lines and text layout.

Nothing here imports from the rest of weft; everything else may import from here.
"""

from weft._engine.util import lazy

lazy.install()
