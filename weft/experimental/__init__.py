"""Public names whose form may still change; each lives in a module of its own, functions of the api in theirs."""

from weft.api.callbacks import io_callback as io_callback
