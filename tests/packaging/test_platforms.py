"""Installations that lack something: SciPy, or Linux."""

import sys

import pytest

from tests.harness.processes import ROOT, run_python

WITHOUT_SCIPY = """
import sys
sys.modules["scipy"] = None  # importing it raises ModuleNotFoundError
import numpy as np
import weft, weft.numpy as wnp, weft.scipy as ws
x = wnp.arange(12.0).reshape(4, 3)
square = x.T @ x + wnp.eye(3)
print(np.allclose(square @ wnp.linalg.solve(square, wnp.ones(3)), 1, atol=1e-4))
print(wnp.linalg.svd(x).S.shape, wnp.linalg.eig(square).eigenvalues.shape)
print(wnp.fft.fft(x).shape, ws.special.gammaln(x + 1).shape, ws.linalg.expm(square).shape)
print(weft.grad(lambda x: ws.special.erf(x).sum())(x).shape, weft.random.gamma(weft.random.key(0), 2.0, (3,)).shape)
try:
    ws.special.bernoulli(4).shape
except ImportError as error:
    print(error)
"""


def test_most_functions_need_no_scipy(tmp_path):
    done = run_python("-c", WITHOUT_SCIPY, WEFT_CACHE_DIR=str(tmp_path))
    assert done.stdout.splitlines() == [
        "True",
        "(3,) (3,)",
        "(4, 3) (4, 3) (3, 3)",
        "(4, 3) (3,)",
        "this function needs scipy.special, and SciPy is not installed: run `pip install scipy`. "
        "A slim installation of weft leaves it out.",
    ], done.stderr


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_an_import_names_the_way_out_on_other_systems(system):
    done = run_python("-c", f"import sys; sys.platform = {system!r}; import weft")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: weft runs on Linux, and this Python runs on {system}: use a Linux container, "
        "a virtual machine, or on Windows the Windows Subsystem for Linux (WSL 2)."
    )


@pytest.mark.skipif(
    not (ROOT / "setup.py").exists(), reason="weft is installed without its sources"
)
def test_an_installation_names_the_way_out_on_other_systems(tmp_path):
    program = "import runpy, sys; sys.platform = 'darwin'; sys.argv = ['setup.py', '--name']; "
    done = run_python("-c", program + f"runpy.run_path({str(ROOT / 'setup.py')!r})", cwd=tmp_path)
    assert done.returncode == 1 and sys.platform == "linux"
    assert done.stderr.startswith("weft runs on Linux, and this Python runs on darwin: ")
