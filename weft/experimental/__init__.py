"""Public names whose interface may still change."""

from weft._engine.api.callbacks import io_callback as io_callback
from weft._engine.control.hijax_types import cur_qdd as cur_qdd
