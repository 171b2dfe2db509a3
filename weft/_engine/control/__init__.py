"""Operations that hold programs: calls, cond, scan, while_loop, checkpoint, custom derivatives, shard_map.

In:   jaxprs, traced by `api`, and operands.
Out:  equations, each with its rules for every transformation, as in `ops`.
Next: `scan`, then `staged_body` for the code that their rules share.
"""

import weft._engine.ops  # noqa: F401  (programs of these operations contain the basic ops)
from weft._engine.ir.registry import registry
from weft._engine.util.lazy import loader

registry.announce(loader(__name__, __path__))
