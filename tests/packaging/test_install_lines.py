"""The lines with `pip install` in the documents and in messages of the package work as they are printed.

One environment runs all of them: first with weft from a copy of the checkout, then with the wheel that the documents build.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft._version import DISTRIBUTION_NAME

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = sorted((ROOT / "weft").rglob("*.py")) + sorted((ROOT / "examples").rglob("*.py"))
USER_PROGRAM = "import jax, optax, einops\nprint('trained by', jax.jit.__module__)\n"
pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="weft is installed without its sources"
)


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def console_blocks(text: str) -> Iterator[str]:
    """Yield the console blocks that install something."""
    for block in re.findall(r"^```(?:console|bash|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if re.search(r"\bpip (install|wheel)\b", block):
            yield block


def inline_commands(text: str) -> Iterator[str]:
    """Yield the commands in running text and in messages, to the end of the quotation or sentence."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = text.replace("{DISTRIBUTION_NAME}", DISTRIBUTION_NAME)
    for command in re.findall(r"\bpip install [^`\"\n]+", text):
        yield re.sub(r"(?<=\S)\.$", "", command.rstrip())


def not_repeated(block: str) -> str:
    """Return the lines of a block without the slow ones that the block of the README has run in the same environment, and without the
    clone of the repository."""
    return re.sub(
        r"^(git clone .*|python -m venv env|(env/bin/)?pip install \.)\n",
        "",
        block,
        flags=re.MULTILINE,
    )


def test_the_project_has_the_name_in_messages():
    assert project()["name"] == DISTRIBUTION_NAME


def test_extras_are_of_the_distribution():
    extras = "|".join(project()["optional-dependencies"])
    for path in [*DOCUMENTS, *SOURCES]:
        text = path.read_text().replace("{DISTRIBUTION_NAME}", DISTRIBUTION_NAME)
        assert {*re.findall(rf"([\w.-]+)\[(?:{extras})\]", text)} <= {
            ".",
            DISTRIBUTION_NAME,
            "jax",
        }, path


class Checkout:
    """A copy of the sources, and the environment `env` in it that its documents create."""

    def __init__(self, folder: Path):
        self.folder, self.sources = folder, folder / "checkout"
        self.programs = self.sources / "env" / "bin"
        self.sources.mkdir()
        for name in ("README.md", "LICENSE", "MANIFEST.in", "pyproject.toml", "setup.py"):
            shutil.copy(ROOT / name, self.sources)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "weft", self.sources / "weft", ignore=ignored)
        for name in ("train.py", "program.py"):
            (self.sources / name).write_text(USER_PROGRAM)

    def run(self, script: str, programs: Path, **variables: str) -> str:
        """Run a script with a folder of programs first on the path, and return its output."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("WEFT_", "PYTHON", "PIP_", "VIRTUAL_ENV"))
        }
        environment |= {
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "1",
            "WEFT_CACHE_DIR": str(self.folder / "cache"),
            **variables,
        }
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=self.sources,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, script + done.stdout + done.stderr
        return done.stdout

    def run_outside(self, script: str, **variables: str) -> str:
        """Run a script before the environment is active."""
        return self.run(script, Path(sys.executable).parent, **variables)

    def run_installed(self, script: str) -> str:
        """Run a script in the environment."""
        return self.run(script, self.programs)

    def check_installed(self) -> None:
        """Check that the environment imports weft of this version from its own packages."""
        code = "import importlib.metadata as m, weft; print(m.version(weft._version.DISTRIBUTION_NAME), weft.__file__)"
        version, file = self.run_installed(f"cd {self.folder}; python -c '{code}'").split()
        assert version == weft.__version__ and file.startswith(str(self.programs.parent))


@pytest.fixture(scope="module")
def blocks():
    """The console blocks by document."""
    return {path.name: [*console_blocks(path.read_text())] for path in DOCUMENTS}


@pytest.fixture(scope="module")
def installed(tmp_path_factory, blocks):
    """A checkout after the block of the README has run there."""
    checkout = Checkout(tmp_path_factory.mktemp("install"))
    (block,) = blocks["README.md"]
    assert "trained by weft" in checkout.run_outside(block)
    return checkout


def test_all_blocks_that_install_are_run(blocks):
    counts = {name: len(found) for name, found in blocks.items() if found}
    assert counts == {
        "README.md": 1,
        "ecosystem.md": 1,
        "getting-started.md": 3,
        "index.md": 1,
        "install.md": 2,
    }


def test_lines_of_the_readme_run(installed):
    installed.check_installed()


@pytest.mark.slow
def test_other_install_lines_run(installed, blocks):
    (of_libraries,) = blocks["ecosystem.md"]
    of_checkout, of_wheel, of_extras = blocks["getting-started.md"]
    commands = {
        command for path in [*DOCUMENTS, *SOURCES] for command in inline_commands(path.read_text())
    }
    assert (
        f"pip install '{DISTRIBUTION_NAME}[checkpoint]'" in commands and "pip install ." in commands
    )

    for line in not_repeated(
        of_libraries
    ).splitlines():  # large libraries are resolved, not downloaded
        printed = installed.run_outside(line, **({"PIP_DRY_RUN": "1"} if "flax" in line else {}))
    assert "trained by weft" in printed
    run_installed = installed.run_installed
    assert DISTRIBUTION_NAME in run_installed(
        "python -c 'import importlib.metadata as m; print(m.requires(\"jax\"))'"
    )
    assert "trained by weft" in run_installed(not_repeated(of_checkout))
    assert "trained by weft" in run_installed(not_repeated(blocks["index.md"][0]))
    for block in blocks["install.md"]:
        run_installed(not_repeated(block))
    installed.check_installed()
    run_installed("\n".join(sorted(commands)) + "\npip check")
    run_installed(
        "python -c 'import tensorstore, mpi4py, weft.checkpoint'; pip uninstall --yes tensorstore mpi4py"
    )
    run_installed(f"pip uninstall --yes {DISTRIBUTION_NAME}; weft --version && exit 1 || exit 0")
    run_installed(of_wheel)
    installed.check_installed()
    run_installed(of_extras + "python -c 'import tensorstore, mpi4py, weft.checkpoint'")
