"""Scripts of the checkout outside the package, imported as modules."""

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.harness.processes import ROOT


def load_script(path: str) -> ModuleType:
    """Import the script at `path` in the checkout, which may import modules of its folder; skip the
    test where weft is installed without it."""
    script = ROOT / path
    if not script.exists():
        pytest.skip(f"{path} is not part of this distribution", allow_module_level=True)
    spec = importlib.util.spec_from_file_location("script_" + script.stem, script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(script.parent), *sys.path])
        spec.loader.exec_module(module)
    return module
