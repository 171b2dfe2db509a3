"""The tutorial on shard_map, run cell by cell on eight devices: every printed result that it shows.

The document is in ../shared/seeds, outside of the project. These tests are skipped if it is absent.
"""

import re
from pathlib import Path

import pytest

import weft
from tests.document.notebook import cells_of, platform, run_apart

DOCUMENT = Path(__file__).parents[2].parent / "shared" / "seeds" / "001_ecc1779ecf986ba7.txt"
CELLS = cells_of(DOCUMENT.read_text()) if DOCUMENT.exists() else []
needs_document = pytest.mark.skipif(not CELLS, reason="the document is absent (../shared/seeds)")

# What a cell prints where the document cannot be compared line by line: a piece of its code, and why.
PICTURES = "jax.debug.visualize_array_sharding(scroll_C_sharded)"  # pictures are not in the text
CUT = "def all_gather_example_tiled"  # the document breaks off in the middle
STALE = "def psum_scatter_example_tiled"  # the output shown is from before an edit of the cell
MESSAGES = (
    "def incorrect_out_specs_example",
    "def scan_vma_problem_func",
)  # words of an error: its substance counts
SPECIAL = (PICTURES, CUT, STALE, *MESSAGES)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Return the records of all cells, run in one process."""
    records, _ = run_apart(DOCUMENT, tmp_path_factory.mktemp("document") / "record.json")
    return records


def cell(records, piece):
    """Return the one cell whose code has `piece`."""
    (record,) = [r for r in records if piece in r["code"]]
    return record


def shown_after(record):
    """Return the text that the document shows after a cell, with the names of this platform's devices."""
    return (
        record["shown"]
        .lstrip("\n")
        .replace("TFRT_CPU_", f"{weft.devices()[0].client.device_prefix}_")
    )


@needs_document
@pytest.mark.parametrize("number", range(len(CELLS)))
def test_every_cell_runs_and_prints_what_is_shown(records, number):
    record = records[number]
    assert record["error"] is None, record["error"]
    if any(piece in record["code"] for piece in SPECIAL):
        return
    printed, shown = record["printed"].strip("\n"), shown_after(record)
    assert shown.startswith(printed)
    assert bool(printed) == ("print(" in record["code"])
    remaining = shown[len(printed) :]
    assert (
        not printed or not remaining.strip() or remaining.startswith("\n\n")
    )  # all that the document shows was printed


@needs_document
def test_values_print_per_device_as_far_as_the_document_goes(records):
    record = cell(records, CUT)
    shown = record["shown"].lstrip("\n")
    assert shown.index("\n\n**VMA and") == 1000
    assert record["printed"].startswith(shown_after(record).partition("\n\n**VMA and")[0])
    assert record["printed"].endswith(
        "Final result_all_gather_tiled: [0. 1. 2. 3.]\nShape of final result: (4,)\n"
    )


@needs_document
def test_the_edited_cell_prints_what_its_code_says(records):
    assert cell(records, STALE)["printed"].splitlines() == [
        "Running psum_scatter_example_tiled (tiled=True):",
        "  BEFORE psum_scatter: x_block = (1, 4)",
        "  AFTER psum_scatter: scattered_sum_block = (1, 1)",
        "",
        "Final result_pscatter_tiled: [[24.]", " [28.]", " [32.]", " [36.]]",
        "Shape of final result: (4, 1)",
    ]  # fmt: skip


@needs_document
def test_pictures_are_drawn(records):
    record = cell(records, PICTURES)
    shown = [line for line in record["shown"].splitlines() if line][:3]
    assert [
        line for line in record["printed"].splitlines() if line and line[0] not in "┌├└│"
    ] == shown
    picture = record["printed"].partition("For context")[0]
    assert re.findall(rf"{platform()} ([\d,]+)", picture) == ["0,1", "2,3", "4,5", "6,7"]


@needs_document
def test_results_varying_over_an_axis_absent_from_their_spec(records):
    printed = cell(records, MESSAGES[0])["printed"]
    words = [
        "incorrect_out_specs_example",
        "out_specs",
        "require replication",
        "can't be statically inferred",
        "P()",
        "replicated across mesh axis 'batch_dim'",
        "float32[3]{batch_dim}",
        "check_rep=False",
    ]
    assert not [word for word in words if word not in printed]


@needs_document
def test_a_carry_that_begins_to_vary(records):
    printed = cell(records, MESSAGES[1])["printed"]
    rows = [
        re.split(r"\s{2,}", line.strip())
        for line in printed.splitlines()
        if line.startswith("    carry")
    ]
    why = "the varying manual axes do not match"
    assert rows == [
        ["carry[0]", "taken as float32[3]{batch_dim}", "returned as float32[3]", why],
        ["carry[1]", "taken as float32[3]", "returned as float32[3]{batch_dim}", why],
    ]
    assert "lax.pvary(carry[1], ('batch_dim',))" in printed


def test_cells_are_divided_from_what_they_print():
    text = "prose\nIn [3]:\n!pip install x\nx = 1\n\nprint(f'{x} a b')\n\n1 a b\n\n\nMore prose.\n\nIn [None]:\ny = 2\n"
    assert cells_of(text) == [
        ("pass\nx = 1\n\nprint(f'{x} a b')", "\n1 a b\n\n\nMore prose.\n\n"),
        ("y = 2\n", ""),
    ]
