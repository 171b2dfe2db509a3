"""Settings as flags of absl, with which programs for JAX set them on the command line: `--jax_enable_x64=true`.

In:   the settings, and absl, which the program itself uses.
Out:  a flag for each setting, its name with the prefix `jax_`; the values of flags on the command line become settings.
Laws: a flag that another module has already defined is not changed. Only this module imports absl.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any


def _absl() -> ModuleType:
    try:
        from absl import flags
    except ImportError as error:
        raise ImportError(
            "config: absl is not installed. Settings as flags require it. Run pip install absl-py."
        ) from error
    return flags


_settings_by_flag: dict[str, Any] = {}  # settings by the names of their flags


def define(config: Any, settings: Iterable[Any]) -> None:
    """Define a flag for each setting."""
    flags = _absl()
    for setting in settings:
        name = f"jax_{setting.name}"
        if name in flags.FLAGS:
            continue
        default = getattr(config, setting.name)
        if setting.kind is bool and not setting.optional:
            flags.DEFINE_bool(name, default, setting.doc)
        else:  # the setting itself parses and checks the text
            flags.DEFINE_string(name, None if default is None else str(default), setting.doc)
        _settings_by_flag[name] = setting


def take(config: Any) -> None:
    """Change the settings whose flags are on the command line."""
    flags = _absl()
    for flag, setting in _settings_by_flag.items():
        value = flags.FLAGS[flag].value
        if flags.FLAGS[flag].present:
            config.update(setting.name, setting.parse(value) if isinstance(value, str) else value)


def parse(config: Any, settings: Iterable[Any]) -> None:
    """Parse the flags of settings on the command line, and mark absl's flags as parsed; the program may parse its own flags later."""
    arguments = sys.argv[1:]
    arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
    ours = [
        argument
        for argument in arguments
        if argument.startswith("-") and argument.lstrip("-").startswith(("jax_", "nojax_"))
    ]
    if not ours and importlib.util.find_spec("absl") is None:
        return
    define(config, settings)
    _absl().FLAGS([sys.argv[0] if sys.argv else "", *ours], known_only=True)
    take(config)


def follow(config: Any, settings: Iterable[Any]) -> None:
    """Change settings by the command line after the program's `absl.app.run` has parsed it."""
    if importlib.util.find_spec("absl") is None:
        return
    define(config, settings)
    from absl import app

    app.call_after_init(lambda: take(config))
