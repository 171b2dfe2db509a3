"""Settings that a program changes for its whole process, restored when it ends."""

import contextlib
from collections.abc import Generator

from weft._engine.util.config import config
from weft._engine.util.config.setting import frozen


def changed_settings(before: dict[str, object]) -> dict[str, object]:
    """Return the settings whose values differ from `before`, which `config.values` returned.

    Those that are frozen have no effect any more.
    """
    return {
        name: value
        for name, value in config.values.items()
        if name not in frozen and before.get(name, value) != value
    }


@contextlib.contextmanager
def restored_settings() -> Generator[None]:
    """Restore all settings that the block has changed."""
    before = config.values
    try:
        yield
    finally:
        for name in changed_settings(before):
            config.update(name, before[name])
