"""Every cell of the documents runs with the plugin as default platform, with the values that the documents show.

The tests of the documents (tests/document) run again in separate processes.
"""

import pytest

from tests.accelerators.plugin import run_on_plugin
from tests.harness.pages import needs_pages
from tests.harness.processes import ROOT

FILES = [
    "test_tutorial.py",
    "test_pjit_document.py",
    "test_shard_map_document.py",
    "test_primer.py",
    "test_pages.py",  # test_worked_pages.py checks texts of the CPU's compiler
]


@needs_pages
@pytest.mark.parametrize("name", FILES)
def test_documents_run_on_the_plugin(name):
    path = ROOT / "tests" / "document" / name
    done = run_on_plugin("-m", "pytest", "-q", "-p", "no:cacheprovider", path, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    if " passed" not in done.stdout:
        pytest.skip(f"{name} has skipped its tests: its document is absent")
