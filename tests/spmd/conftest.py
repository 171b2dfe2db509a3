"""Nothing here can be collected without the collectives."""

import importlib.util

collect_ignore_glob = ["*.py"] if importlib.util.find_spec("weft.ops.collectives") is None else []
