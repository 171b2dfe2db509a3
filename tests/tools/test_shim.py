"""`weft shim`: in an environment of its own, `import jax` is weft, package managers are content, and nothing is left afterwards."""

import json
import os
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.harness.processes import ROOT
from weft.compat import JAX_VERSION
from weft.tools import shim

PROGRAM = """
import importlib.metadata as metadata, json, subprocess, sys
import jax, jaxlib, jax.numpy as jnp
from jax.sharding import Mesh
inner = subprocess.run([sys.executable, "-c", "import jax; print(jax.jit(lambda x: x + 1)(1))"], capture_output=True, text=True)
print(json.dumps({
    "version": jax.__version__, "info": jax.__version_info__, "jaxlib": jaxlib.__version__, "file": jax.__file__,
    "distributions": [metadata.version("jax"), metadata.version("jaxlib")], "requires": metadata.requires("jax"),
    "top": metadata.distribution("jax").read_text("top_level.txt").split(), "inner": inner.stdout.strip(),
    "sum": int(jnp.arange(4).sum()), "module": jax.jit.__module__, "axes": str(jax.make_mesh((1,), ("a",)).axis_types[0]),
}))
"""


class Environment:
    """A fresh environment that sees weft and what it needs, without their distributions' neighbours."""

    def __init__(self, folder: Path, with_pip: bool = False):
        venv.create(folder, with_pip=with_pip, symlinks=True)
        self.folder = folder
        (self.site,) = (folder / "lib").glob("python*/site-packages")
        (self.site / "weft.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")

    def run(self, *words, status: int | None = 0, **variables) -> str:
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "WEFT_JAX_API")
        }
        done = subprocess.run(
            [self.folder / "bin" / "python", *words],
            capture_output=True,
            text=True,
            timeout=120,
            env={**environment, **variables},
            cwd=self.folder,
        )
        assert status in (None, done.returncode), done.stdout + done.stderr
        return done.stdout + done.stderr

    def files(self) -> set[str]:
        return {str(path.relative_to(self.site)) for path in self.site.rglob("*")}


def test_import_jax_is_weft_until_the_shim_is_removed(tmp_path):
    environment = Environment(tmp_path / "fresh")
    before = environment.files()
    environment.run("-m", "weft", "shim", "install")
    seen = json.loads(environment.run("-c", PROGRAM))
    full = f"{JAX_VERSION}+weft"
    assert (
        seen["version"] == seen["jaxlib"] == JAX_VERSION
        and ".".join(map(str, seen["info"])) == JAX_VERSION
    )
    assert (
        seen["distributions"] == [full, full]
        and seen["requires"][0] == f"jaxlib=={full}"
        and seen["top"] == ["jax"]
    )
    assert seen["file"] == str(environment.site / "jax" / "__init__.py")
    assert (seen["inner"], seen["sum"], seen["module"]) == ("2", 6, "weft")
    assert (
        seen["axes"] == "AxisType.Explicit"
    )  # as JAX of that version makes them; without the shim they are Auto
    assert "AxisType.Auto" in environment.run("-c", PROGRAM, WEFT_JAX_API="0.4.30")
    assert f"{full}, provided by weft" in environment.run("-m", "weft", "info")
    (tmp_path / "program.py").write_text(PROGRAM)
    assert (
        json.loads(environment.run("-m", "weft", "run", str(tmp_path / "program.py")))["axes"]
        == "AxisType.Explicit"
    )
    environment.run("-m", "weft", "shim", "uninstall")
    assert environment.files() == before


def test_another_version_replaces_the_first(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    shim.install(site=site)
    said = shim.install("0.4.30", site=site)
    assert "jax 0.4.30" in said[0]
    assert sorted(path.name for path in site.iterdir()) == [
        "jax",
        "jax-0.4.30.dist-info",
        "jaxlib",
        "jaxlib-0.4.30.dist-info",
    ]
    assert shim.uninstall(site) == [f"removed jax 0.4.30 and jaxlib 0.4.30 from {site}"]
    assert shim.uninstall(site) == [f"nothing to remove in {site}"]
    with pytest.raises(shim.ShimError, match="a version looks like"):
        shim.install("newest", site=site)


def test_the_metadata_records_every_file_with_its_digest(tmp_path):
    shim.install(site=tmp_path)
    for name in ("jax", "jaxlib"):
        (notes,) = tmp_path.glob(f"{name}-*.dist-info")
        rows = [row.split(",") for row in (notes / "RECORD").read_text().splitlines()]
        listed = {path: (digest, size) for path, digest, size in rows}
        there = {
            str(path.relative_to(tmp_path))
            for folder in (notes, tmp_path / name)
            for path in folder.rglob("*")
            if path.is_file()
        }
        assert set(listed) == there
        for path, (digest, size) in listed.items():
            if path.endswith("RECORD"):
                assert (digest, size) == ("", "")
            else:
                assert (
                    digest == f"sha256={shim._digest((tmp_path / path).read_text())}"
                    and int(size) == (tmp_path / path).stat().st_size
                )


@pytest.mark.parametrize("with_metadata", [True, False])
def test_nothing_is_written_where_another_jax_is(tmp_path, with_metadata):
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text('"""Not weft."""\n')
    if with_metadata:
        notes = tmp_path / "jax-0.9.0.dist-info"
        notes.mkdir()
        (notes / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: jax\nVersion: 0.9.0\nSummary: another one\n"
        )
        (notes / "INSTALLER").write_text("pip\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(shim.ShimError, match=r"Nothing was changed\. Uninstall it"):
        shim.install(site=tmp_path)
    shim.uninstall(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_pip_finds_requirements_met_and_can_remove_the_shim(tmp_path):
    environment = Environment(tmp_path / "fresh", with_pip=True)
    before = environment.files()
    environment.run("-m", "weft", "shim", "install")
    wheel = tmp_path / "needs_jax-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("needs_jax.py", "import jax\nfrom jax import numpy\n")
        archive.writestr(
            "needs_jax-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: needs-jax\nVersion: 1.0\n"
            "Requires-Dist: jax>=0.7,!=0.8.0\nRequires-Dist: jaxlib>=0.7\nRequires-Dist: jax[cpu]<=0.10.2\n",
        )
        archive.writestr(
            "needs_jax-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("needs_jax-1.0.dist-info/RECORD", "")
    environment.run(
        "-m", "pip", "install", "--no-index", "--quiet", "--disable-pip-version-check", str(wheel)
    )
    said = environment.run(
        "-m", "pip", "check", "--disable-pip-version-check", status=None
    )  # others on the path may lack something
    assert not [
        line for line in said.splitlines() if line.startswith(("needs-jax ", "jax ", "jaxlib "))
    ], said
    environment.run("-c", "import needs_jax; assert needs_jax.numpy.ones(2).sum() == 2")
    environment.run("-m", "pip", "uninstall", "--yes", "--quiet", "needs-jax", "jax", "jaxlib")
    left = {
        name
        for name in environment.files() - before
        if "pip" not in name and "setuptools" not in name and "pkg_resources" not in name
    }
    assert not [name for name in left if "jax" in name], left
