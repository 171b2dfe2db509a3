"""The documents' programs on four processes of two devices: they print the output of one process of
eight devices, pictures included, and leave equal arrays.

The documents are in ../shared/seeds; where they are absent these tests are skipped.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.harness.processes import run_python
from tests.processes.ranks import PATIENCE_S, ROOT, run_ranks

PROGRAM = Path(__file__).with_name("document_programs.py")
DOCUMENTS = ROOT.parent / "shared" / "seeds"
SIZE = 64
_NUMBER = re.compile(r"-?\d+\.\d*(?:e[-+]?\d+)?")
_TIMING = re.compile(r"\d+(?:\.\d+)? \w?s\b|\d+\.\d+ seconds")


def near(text: str, other: str) -> bool:
    """Return whether texts differ in the last digits of numbers only."""
    numbers = [[float(x) for x in _NUMBER.findall(t)] for t in (text, other)]
    same_words = _NUMBER.sub("#", text).split() == _NUMBER.sub("#", other).split()
    return same_words and np.allclose(*numbers, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["000_2cdfe1bffc1a2e32", "001_ecc1779ecf986ba7", "002_0974c6e356b05095"]
)
def test_documents_give_on_processes_what_they_give_on_one(name, tmp_path):
    document = DOCUMENTS / f"{name}.txt"
    if not document.exists():
        pytest.skip("the document is absent (../shared/seeds)")
    if "jax_smi" in document.read_text():
        pytest.importorskip("jax_smi")
    done = run_python(
        PROGRAM, document, tmp_path / "one", SIZE, timeout=PATIENCE_S, WEFT_NUM_DEVICES="8"
    )
    assert done.returncode == 0, done.stderr
    run_ranks(4, PROGRAM, 2, arguments=[str(document), str(tmp_path / "many"), str(SIZE)])
    one, many = (json.loads((tmp_path / which).read_text()) for which in ("one", "many"))
    assert len(one) == len(many) > 20 and sum(len(cell["arrays"]) for cell in many) > 20
    for alone, together in zip(one, many):
        code = alone["code"]
        assert together["error"] == alone["error"], code
        assert near(*(_TIMING.sub("", cell["printed"]) for cell in (together, alone))), code
        for x in alone["arrays"].keys() & together["arrays"].keys():
            assert together["arrays"][x]["sharding"] == alone["arrays"][x]["sharding"], (x, code)
            np.testing.assert_allclose(
                together["arrays"][x]["values"], alone["arrays"][x]["values"], rtol=1e-4, atol=1e-5
            )
        assert {*alone["arrays"], "x"} == {*together["arrays"], "x"}, (
            code
        )  # `x` may be the variable of a comprehension
