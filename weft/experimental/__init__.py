"""Public names whose interface may still change."""

from weft.api.callbacks import io_callback as io_callback
from weft.control.hitypes import cur_qdd as cur_qdd
