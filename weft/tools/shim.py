"""`weft shim install` and `uninstall`: distributions `jax` and `jaxlib` in a Python environment
that import weft.

In:  the environment of the Python that runs this, and the version to report.
Out: in its site-packages, a package `jax` that becomes weft's stand-in when it is imported, with
     stubs for type checkers, a package `jaxlib` that does the same, and the metadata of both, so
     that package managers, `importlib.metadata` and the requirements of other distributions find
     them.
Laws: nothing is written if another jax is installed; `uninstall` and `pip uninstall` remove all
      files.

Next to read: `compat/resolver.py`, the import hook.
"""

import argparse
import base64
import hashlib
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from weft._version import DISTRIBUTION_NAME, __version__ as weft_version
from weft.compat import JAX_VERSION, is_shim
from weft.tools.stubs.jax_modules import jax_stubs

DEFAULT_VERSION = f"{JAX_VERSION}+weft"
_INSTALLER = "weft"
_PACKAGES = ("jax", "jaxlib")
_VERSION = re.compile(
    r"(\d+)\.(\d+)(\.\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?"
)  # releases of JAX, with a local label
_EXTRAS = ("cpu", "minimum-jaxlib")
_ACCELERATOR_EXTRAS = ("cuda12", "cuda13", "tpu", "rocm")  # extras of weft's distribution, too


class ShimError(Exception):
    """Raised if the distributions cannot be installed or removed."""


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    action: Callable[[], list[str]] = (
        uninstall if options.action == "uninstall" else lambda: install(options.version)
    )
    try:
        print("\n".join(action()))
    except ShimError as error:
        print(f"weft shim {options.action}: {error}", file=sys.stderr)
        return 1
    return 0


def install(version: str = DEFAULT_VERSION, site: Path | None = None) -> list[str]:
    """Install the distributions of this version, replacing earlier ones; return lines that describe
    the changes.

    `site` is the folder for packages, by default the running Python's. Raises ShimError if another
    jax is installed, if `version` is not a version, or if the folder cannot be written.
    """
    if not _VERSION.fullmatch(version):
        raise ShimError(f"a version looks like {DEFAULT_VERSION} or 0.4.30, got {version!r}")
    site = _site() if site is None else site
    for name in _PACKAGES:
        _refuse_another(name, site)
    uninstall(site)
    written: list[Path] = []
    try:
        for name in _PACKAGES:
            written += _write(name, version, site)
    except OSError as error:
        for file in written:
            file.unlink(missing_ok=True)
        raise ShimError(
            f"cannot write to {site}: {error.strerror}.\n"
            "  Run it with the Python of a virtual environment of your own."
        ) from None
    return [
        f"jax {version} and jaxlib {version}, provided by weft {weft_version}, are installed in {site}",
        "`import jax` is weft for this environment's Python; `weft shim uninstall` undoes it",
    ]


def uninstall(site: Path | None = None) -> list[str]:
    """Remove the distributions that `install` wrote; return lines that describe the changes.
    Another jax is not touched."""
    site = _site() if site is None else site
    removed = []
    for name in _PACKAGES:
        installed = _distribution(name, site)
        if installed is None or not _is_ours(installed):
            continue
        removed.append(f"{name} {installed.version}")
        try:
            _remove(name, installed, site)
        except OSError as error:
            raise ShimError(f"cannot remove {error.filename or site}: {error.strerror}") from None
    return (
        [f"removed {' and '.join(removed)} from {site}"]
        if removed
        else [f"nothing to remove in {site}"]
    )


def describe() -> str:
    """Return one line on the origin of `import jax` in this environment, for `weft info`."""
    spec = PathFinder.find_spec("jax", _path())
    if spec is None or spec.origin is None:
        return "not installed; `weft run` and `weft shim install` make `import jax` mean weft"
    try:
        version = distribution("jax").version
    except PackageNotFoundError:
        version = "of no known version"
    folder = os.path.dirname(spec.origin)
    return (
        f"{version}, provided by weft ({folder})"
        if is_shim(spec.origin)
        else f"{version}, not weft's ({folder})"
    )


def _site() -> Path:
    """Return the folder for packages of the running Python."""
    marker = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    if sys.prefix == sys.base_prefix and marker.exists():
        raise ShimError(
            "this Python belongs to the operating system, whose package manager looks after it.\n"
            "  Make a virtual environment (python -m venv ENV), install weft there and run ENV/bin/weft shim install."
        )
    return Path(sysconfig.get_path("purelib"))


def _path() -> list[str]:
    """Return the module search path without the current folder."""
    here = os.getcwd()
    return [folder for folder in sys.path if folder and os.path.abspath(folder) != here]


def _refuse_another(name: str, site: Path) -> None:
    way_out = (
        f"  Nothing was changed. Uninstall it (pip uninstall jax jaxlib), or use an environment without it;\n"
        f"  `weft run` works without uninstalling it. (This environment is {sys.prefix}.)"
    )
    installed = _distribution(name, site)
    if installed is not None and not _is_ours(installed):
        raise ShimError(
            f"{name} {installed.version} is installed here, and it is not weft's ({installed.locate_file(name)}).\n{way_out}"
        )
    spec = PathFinder.find_spec(name, [str(site), *_path()])
    if spec is not None and spec.origin is not None and not is_shim(spec.origin):
        raise ShimError(
            f"a package {name!r} that is not weft's is on the module path ({spec.origin}).\n{way_out}"
        )


def _distribution(name: str, site: Path) -> Distribution | None:
    """Return the installed distribution of that name: in the folder for packages, otherwise from
    the running Python's path."""
    return next(iter(distributions(name=name, path=[str(site), *_path()])), None)


def _is_ours(found: Distribution) -> bool:
    return (found.read_text("INSTALLER") or "").strip() == _INSTALLER and "weft" in (
        found.metadata["Summary"] or ""
    )


def _write(name: str, version: str, site: Path) -> list[Path]:
    folder = f"{name}-{version}.dist-info"
    contents = {
        f"{name}/__init__.py": _PACKAGE_JAX.format(version=version)
        if name == "jax"
        else _PACKAGE_JAXLIB.format(version=version),
        **(jax_stubs() if name == "jax" else {}),
        f"{folder}/METADATA": _metadata(name, version),
        f"{folder}/WHEEL": f"Wheel-Version: 1.0\nGenerator: weft {weft_version}\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/INSTALLER": f"{_INSTALLER}\n",
        f"{folder}/REQUESTED": "",
        f"{folder}/top_level.txt": f"{name}\n",
    }
    lines = [
        f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in contents.items()
    ]
    contents[f"{folder}/RECORD"] = "\n".join([*lines, f"{folder}/RECORD,,", ""])
    for path, text in contents.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    return [site / path for path in contents]


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def _metadata(name: str, version: str) -> str:
    """Return the core metadata. They require weft only if weft is installed as a distribution, not
    just found on a path."""
    needs = [f"jaxlib=={version}"] if name == "jax" else []
    try:
        distribution(DISTRIBUTION_NAME)
        needs.append(DISTRIBUTION_NAME)
        if name == "jax":
            needs += [
                f"{DISTRIBUTION_NAME}[{extra}]; extra == '{extra}'" for extra in _ACCELERATOR_EXTRAS
            ]
    except PackageNotFoundError:
        pass
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        f"Summary: The names of {name}, provided by weft; installed by `weft shim install`",
        f"Requires-Python: >={sys.version_info.major}.{sys.version_info.minor}",
        *[f"Requires-Dist: {need}" for need in needs],
        *[
            f"Provides-Extra: {extra}"
            for extra in (*_EXTRAS, *_ACCELERATOR_EXTRAS)
            if name == "jax"
        ],
    ]
    return "\n".join(
        [
            *lines,
            "",
            "`import jax` gives the objects of weft in this environment. `weft shim uninstall` removes it.",
            "",
        ]
    )


def _remove(name: str, found: Distribution, site: Path) -> None:
    """Delete the files of the distribution, their compiled copies, and folders that become
    empty."""
    files = [Path(str(found.locate_file(path))) for path in found.files or ()]
    for file in files:
        file.unlink(missing_ok=True)
    shutil.rmtree(site / name / "__pycache__", ignore_errors=True)
    folders = {folder for file in files for folder in file.parents if site in folder.parents}
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


_PACKAGE_JAX = '''"""The names of JAX, provided by weft. `weft shim install` wrote this file, `weft shim uninstall` removes it."""

VERSION = "{version}"

try:
    from weft.compat import become_jax
except ModuleNotFoundError as error:
    raise ImportError(
        f"this environment's jax is a shim over weft, and weft cannot be imported ({{error}}).\\n"
        "  Install weft here, or remove the shim: pip uninstall jax jaxlib"
    ) from error
become_jax(__name__, VERSION)
'''

_PACKAGE_JAXLIB = '''"""The name jaxlib, provided by weft. `weft shim install` wrote this file, `weft shim uninstall` removes it."""

VERSION = "{version}"

from weft.compat import become_jax

become_jax(__name__, VERSION)
'''
