"""An aarch64 Python under QEMU, with weft's dependencies: `python -m tests.harness.aarch64 FOLDER` makes it for `make arm`.

In:   Debian's qemu-user-static, apt-get and dpkg-deb of this system, and the package registries that apt and pip are set up for.
Out:  FOLDER/usr/bin/python, a script that starts the emulated Python. It is `sys.executable` in there, so subprocesses are emulated too.
Laws: nothing outside the folder changes: apt keeps its lists and packages of the other architecture in it, and needs no root.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEBIAN_PACKAGES = ("python3", "libstdc++6")
TEST_PACKAGES = ("pytest", "hypothesis", "mpmath")
#: oldest and newest minor version of the C library whose wheels the packages of Debian 12 and later run
GLIBC_MINOR_VERSIONS = (17, 36)


class MissingToolError(Exception):
    """A program of the host that the environment needs and that is not installed."""


def tool(*names: str, package: str) -> str:
    """Return the path of the first program that is installed."""
    for name in names:
        if found := shutil.which(name):
            return found
    raise MissingToolError(
        f"{names[0]} is not installed, which Debian's package {package} has: apt-get install {package}"
    )


def make(folder: Path) -> Path:
    """Make the environment in a folder and return its Python."""
    qemu = tool("qemu-aarch64-static", "qemu-aarch64", package="qemu-user-static")
    apt, unpack = tool("apt-get", package="apt"), tool("dpkg-deb", package="dpkg")
    for archive in download(apt, folder / "apt"):
        subprocess.run([unpack, "-x", archive, folder], check=True)
    program = (folder / "usr/bin/python3").resolve()
    python = folder / "usr/bin/python"
    python.write_text(
        f'#!/bin/sh\nexec {shlex.join([qemu, "-L", str(folder), "-0", str(python), str(program)])} "$@"\n'
    )
    python.chmod(0o755)
    install_wheels(program.name.removeprefix("python"), folder / "usr/lib/python3/dist-packages")
    return python


def download(apt: str, state: Path) -> list[Path]:
    """Return the files of Debian's packages for aarch64 and of all that they need."""
    packages = state / "cache/archives"
    for subfolder in (state / "lists/partial", packages / "partial"):
        subfolder.mkdir(parents=True, exist_ok=True)
    (state / "status").write_text("")
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
        "APT::Install-Recommends": "0",
        "APT::Sandbox::User": "",
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "Debug::NoLocking": "1",
    }
    command = [apt, "-qq", *[f"-o{name}={value}" for name, value in options.items()]]
    subprocess.run([*command, "update"], check=True)
    subprocess.run(
        [*command, "--yes", "--download-only", "install", *DEBIAN_PACKAGES],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return sorted(packages.glob("*.deb"))


def install_wheels(version: str, target: Path) -> None:
    """Install the wheels that weft and its tests need for this version of Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    of_tests = [
        line
        for line in project["optional-dependencies"]["test"]
        if re.split(r"[^\w-]", line)[0] in TEST_PACKAGES
    ]
    oldest, newest = GLIBC_MINOR_VERSIONS
    platforms = [f"manylinux_2_{minor}_aarch64" for minor in range(oldest, newest + 1)]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            "--upgrade",
            "--target",
            target,
            "--only-binary=:all:",
            "--implementation=cp",
            f"--python-version={version}",
            *[f"--platform={platform}" for platform in ["manylinux2014_aarch64", *platforms]],
            *project["dependencies"],
            *of_tests,
        ],
        check=True,
    )


if __name__ == "__main__":
    try:
        path = make(Path(sys.argv[1]).resolve())
    except MissingToolError as error:
        sys.exit(f"make arm: {error}")
    sys.exit(
        subprocess.run(
            [path, "-c", "import llvmlite, numpy, os; print('aarch64 Python:', os.uname().machine)"]
        ).returncode
    )
