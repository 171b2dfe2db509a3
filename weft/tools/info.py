"""`weft info`: a description of this machine and weft's configuration: versions, processor,
devices, caches and settings."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import weft
from weft._engine import backends
from weft._engine.codegen.toolchain import target
from weft._engine.processes import job_secret, mpi
from weft._engine.util import cache
from weft._engine.util.config import config, known_settings
from weft._engine.util.errors import align
from weft._engine.util.machine_model import measured
from weft._engine.util.messages.quantities import quantity
from weft.tools import shim

_VARIABLES = ("WEFT_", "XLA_FLAGS", "XLA_PYTHON_CLIENT", "PJRT_", "TPU_", "CUDA_VISIBLE")
PARTS = ("numpy", "llvmlite", "ml_dtypes", "scipy", "opt_einsum", "rich")


def describe() -> str:
    """Return aligned lines of `name  value`."""
    rows = [
        ("weft", weft.__version__),
        ("python", f"{platform.python_version()} ({platform.python_implementation()})"),
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("processor", f"{_processor()}, {quantity(_cores(), 'core')} for this process"),
        ("machine model", _machine_model()),
        ("matrix unit", _matrix_unit()),
        ("memory", _memory()),
        ("devices", _devices()),
        *[
            ("plugins" if i == 0 else "", line)
            for i, line in enumerate(backends.describe_plugins())
        ],
        *[
            ("with" if i == 0 else "", f"{name} {_version_of(name)}")
            for i, name in enumerate(PARTS)
        ],
        ("mpi", mpi.describe_library()),
        ("jax", shim.describe()),
        *_cache_rows(),
        *[(name, _format_variable(name)) for name in sorted(os.environ) if _is_read(name)],
    ]
    return "\n".join(align(rows))


def print_environment_info(return_string: bool = False) -> str | None:
    """Print the output of `weft info`, for bug reports; with `return_string`, return it instead.

    >>> weft.print_environment_info(return_string=True).split()[0]
    'weft'
    """
    text = describe()
    if return_string:
        return text
    print(text)
    return None


def settings() -> str:
    """Return lines on the settings that have an effect: environment variables, values and
    meanings."""
    effective = [one for one in known_settings() if not one.doc.startswith("Accepted")]
    rows = [(f"WEFT_{one.name.upper()}", repr(config.read(one.name)), one.doc) for one in effective]
    return "\n".join(align(sorted(rows)))


def _is_read(variable: str) -> bool:
    """Return True if weft reads an environment variable."""
    return variable.startswith(_VARIABLES) or (
        variable.startswith("JAX_") and variable[4:].lower() in config.values
    )


def _format_variable(variable: str) -> str:
    """Return the value of an environment variable, without secrets."""
    return "(set; not shown)" if variable == job_secret.VARIABLE else os.environ[variable]


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _matrix_unit() -> str:
    try:
        return target.tile_unit()
    except ValueError as error:  # an unknown level in WEFT_CPU_FEATURES, which prevents compilation
        return f"unknown. {error}"


def _machine_model() -> str:
    model = measured()
    return f"{model.name}, caches of {model.l1_bytes >> 10}, {model.l2_bytes >> 10} and {model.l3_bytes >> 10} KiB"


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    except (AttributeError, ValueError, OSError):
        return "unknown"


def _devices() -> str:
    try:
        devices: list[Any] = list(weft.devices())
    except Exception as error:  # the report includes failures
        return str(error).partition("\n")[0]
    kinds = sorted({f"{device.platform}" for device in devices})
    advice = (
        "choose with WEFT_NUM_DEVICES or `weft run --devices N`"
        if kinds == ["cpu"]
        else "choose with WEFT_PLATFORMS"
    )
    return f"{len(devices)} ({', '.join(kinds)}; {advice})"


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


def _cache_rows() -> list[tuple[str, str]]:
    """Return the folders of compiled kernels and their sizes."""
    folder = cache.directory()
    if folder is None:
        return [("cache", "off")]
    sizes = [size for _, size, _ in cache.stored_files()]
    return [
        (
            "cache",
            f"{folder}: {quantity(len(sizes), 'file')}, {sum(sizes) / 2**20:.1f} MiB (choose with WEFT_CACHE_DIR)",
        )
    ]
