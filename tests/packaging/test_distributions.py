"""What `make dist` builds holds the whole package, and an installed weft runs the demo.

With `WEFT_DIST` set to a folder the files in it are tested, else they are built first. Both need the package registry.
"""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = {".py", ".ll", ".js", ".txt", ".pyi", ".typed"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ROOT / "pyproject.toml").exists(), reason="weft is installed without its sources"
    ),
]


def run(*command, **options) -> str:
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "WEFT_NUM_DEVICES", "WEFT_VERIFY")
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, Path]:
    """Build the wheel and the source distribution, and return their paths by kind."""
    folder = Path(os.environ.get("WEFT_DIST", "")).absolute()
    if "WEFT_DIST" not in os.environ:
        folder = tmp_path_factory.mktemp("dist")
        run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "source": source}


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory) -> Path:
    """Unpack the source distribution, and return its folder."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built["source"]) as archive:
        archive.extractall(folder, filter="data")
    (inside,) = folder.iterdir()
    return inside


def package(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in (folder / "weft").rglob("*")
        if path.suffix in KINDS and path.is_file()
    }


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built["wheel"]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        notes = {Path(name).name for name in archive.namelist() if ".dist-info/" in name}
    assert names == package(ROOT)
    assert (
        any(name.endswith(".ll") for name in names)
        and "weft/numpy/__init__.pyi" in names
        and "weft/py.typed" in names
    )
    assert {"LICENSE", "METADATA", "entry_points.txt"} <= notes


def test_sdist_contains_package_docs_examples_and_tests(unpacked):
    assert package(unpacked) == package(ROOT)
    for name in (
        "LICENSE",
        "README.md",
        "Makefile",
        "docs/tour.md",
        "examples/train_digits.py",
        "examples/data/digits.npz",
        "conftest.py",
    ):
        assert (unpacked / name).exists(), name
    assert not list(unpacked.rglob("__pycache__"))


@pytest.mark.parametrize("kind", ["wheel", "source"])
def test_the_demo_runs_where_weft_is_installed(kind, built, unpacked, tmp_path):
    venv.create(tmp_path / "fresh", with_pip=True)
    programs = tmp_path / "fresh" / "bin"
    run(str(programs / "python"), "-m", "pip", "install", "--quiet", str(built[kind]))
    place = run(str(programs / "python"), "-c", "import weft; print(weft.__file__)", cwd=tmp_path)
    assert place.startswith(str(tmp_path / "fresh"))
    output = run(
        str(programs / "weft"),
        "run",
        str(unpacked / "examples" / "train_digits.py"),
        "--devices",
        "8",
        cwd=tmp_path,
    )
    assert "accuracy" in output
