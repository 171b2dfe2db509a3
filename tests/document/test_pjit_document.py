"""The notebook of pjit examples, run cell by cell on eight devices: values, layouts, and what each device holds.

The document is in ../shared/seeds, outside of the project. Its first cell starts the tracker of `jax_smi` (from the
registry, where it asks for JAX; `make setup` installs it alone). Without either these tests are skipped.
"""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.document.notebook import cells_of, platform, run_apart

DOCUMENT = Path(__file__).parents[2].parent / "shared" / "seeds" / "002_0974c6e356b05095.txt"
CELLS = cells_of(DOCUMENT.read_text()) if DOCUMENT.exists() else []
pytestmark = [
    pytest.mark.skipif(not CELLS, reason="the document is absent (../shared/seeds)"),
    pytest.mark.skipif(
        importlib.util.find_spec("jax_smi") is None, reason="jax_smi is not installed"
    ),
]

TEXT, TIMING = "compile().as_text()", " per loop (mean"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Return the records of all cells, run in one process."""
    records, complaints = run_apart(DOCUMENT, tmp_path_factory.mktemp("document") / "record.json")
    assert "Traceback" not in complaints  # the tracker works in a separate thread
    return records


@pytest.mark.parametrize("number", range(len(CELLS)))
def test_every_cell_runs_and_prints_what_is_shown(records, number):
    record = records[number]
    assert record["error"] is None, record["error"]
    shown = record["shown"].strip("\n").partition("\n\n\n")[0]
    if TEXT not in record["code"] and TIMING not in shown:
        pictures = [line for line in record["printed"].splitlines() if line[:1] in "┌│├└"]
        values = record["printed"].splitlines()[len(pictures) :]
        assert "\n".join(values) == shown
        assert bool(pictures) == ("visualize_array_sharding" in record["code"])


def local_shapes(text: str) -> list[str]:
    """Return the local shapes of arguments and result, from the first line of a program's text."""
    layout = text.partition("entry_computation_layout=")[2].partition(", allow_spmd")[0]
    return re.findall(r"\w\d+\[([\d,]*)\]", layout.partition("\n")[0])


def test_programs_have_the_local_shapes_that_the_document_shows(records):
    texts = [(r["printed"], r["shown"].strip("\n")) for r in records if TEXT in r["code"]]
    assert len(texts) == 4
    for printed, shown in texts:
        assert printed.startswith(
            "HloModule jit_matmul, is_scheduled=true, entry_computation_layout="
        )
        assert local_shapes(printed) == local_shapes(shown)


def test_the_collectives_of_each_case(records):
    """Inner axes split alike need one sum. Other axes also need the collectives that make the splits agree."""
    counts = [
        {
            kind: r["printed"].count(f" {kind}(")
            for kind in ("all-reduce", "all-gather", "all-to-all", "collective-permute")
        }
        for r in records
        if TEXT in r["code"]
    ]
    assert counts[0] == {"all-reduce": 1, "all-gather": 0, "all-to-all": 0, "collective-permute": 0}
    assert all(sum(kinds.values()) <= 3 for kinds in counts)


def test_the_picture_of_the_first_layout(records):
    (record,) = [
        r for r in records if "P(None, 'a')))" in r["code"] and "P('a', None)" in r["code"]
    ]
    assert (
        re.findall(rf"{platform()} ([\d,]+)", record["printed"]) == ["0,1", "2,3", "4,5", "6,7"] * 2
    )
