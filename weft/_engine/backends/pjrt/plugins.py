"""PJRT plugins: locating, registering and loading them, and reporting why one does not work.

In:   installed packages, PJRT_NAMES_AND_LIBRARY_PATHS, calls of `register_plugin`.
Out:  backends by platform name (`backends.register`); `describe_plugins` for reports.
Laws: plugin packages of NVIDIA, AMD, Intel and Google are located by the paths of their libraries; their
      Python code, which needs JAX's internals, is not run. A library is loaded when its platform is first used.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft._engine import processes
from weft._engine.backends import base
from weft._engine.backends.base import Backend, register
from weft._engine.util.config import config, requested_devices
from weft._engine.util.errors import DeviceRuntimeError
from weft._engine.util.record import record


@record
class KnownPlugin:
    """A plugin of a vendor. Of its packages, the first that is installed is used."""

    platform: str
    device_platform: str  # `Device.platform`
    libraries: tuple[str, ...]  # paths relative to the entries of sys.path


KNOWN_PLUGINS = (
    KnownPlugin("tpu", "tpu", ("libtpu/libtpu.so",)),
    KnownPlugin(
        "cuda",
        "gpu",
        (
            "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
            "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
        ),
    ),
    KnownPlugin(
        "rocm",
        "gpu",
        (
            "jax_plugins/xla_rocm10/xla_rocm_plugin.so",
            "jax_plugins/xla_rocm7/xla_rocm_plugin.so",
            "jax_plugins/xla_rocm60/xla_rocm_plugin.so",
        ),
    ),
    KnownPlugin("oneapi", "gpu", ("jax_plugins/xla_oneapi/xla_oneapi_plugin.so",)),
)

_DEVICE_PLATFORMS = {plugin.platform: plugin.device_platform for plugin in KNOWN_PLUGINS}

#: the PCI vendor id of TPUs, and Linux's folder of this machine's devices
_GOOGLE_VENDOR = "0x1ae0"
_PCI_DEVICES = Path("/sys/bus/pci/devices")

#: NVIDIA's libraries, in order of their dependences
_NVIDIA_LIBRARIES = (
    "cudart",
    "nvrtc",
    "nvJitLink",
    "cublasLt",
    "cublas",
    "nccl",
    "cupti",
    "cusparse",
    "cusolver",
    "cufft",
    "nvshmem_host",
    "cudnn",
)

#: environment variable -> (option of GPU clients, function that parses it)
_GPU_VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "XLA_PYTHON_CLIENT_ALLOCATOR": ("allocator", str.lower),
    "XLA_PYTHON_CLIENT_MEM_FRACTION": ("memory_fraction", float),
    "XLA_CLIENT_MEM_FRACTION": ("memory_fraction", float),
    "XLA_PYTHON_CLIENT_PREALLOCATE": (
        "preallocate",
        lambda text: text not in ("0", "false", "False"),
    ),
    "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB": (
        "collective_memory_size",
        lambda text: int(text) << 20,
    ),
    "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE": (
        "abort_collectives_on_failure",
        lambda text: bool(int(text)),
    ),
    "XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT": (
        "use_tfrt_gpu_client",
        lambda text: bool(int(text)),
    ),
}


#: options of a client, or a function that returns them when the client is created
_Options = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


@record(frozen=False)
class Plugin:
    """A registered plugin; `failure` is the reason why it could not be used. Without a path it is unusable."""

    platform: str
    device_platform: str
    path: str
    priority: int
    options: _Options
    failure: str = ""
    library: Any = None  # the `PluginLibrary`, or None before it is loaded


registered: dict[str, Plugin] = {}


def register_plugin(
    plugin_name: str,
    *,
    library_path: str | None = None,
    priority: int = 400,
    options: _Options | None = None,
) -> None:
    """Register `plugin_name` as a platform whose devices the plugin at `library_path` drives.

    `options` (strings, numbers, bools, lists of integers) are passed to the plugin's client; a
    function returns them when the client is created. Of the plugins whose client can be created, the
    one with the highest `priority` is the default platform; below 0, the CPU is. Raises ValueError
    without a path, or if the name is taken.
    """
    if not library_path:
        raise ValueError(
            f"register_plugin: plugin {plugin_name!r} has no library_path. Pass the path of the shared "
            "library that exports GetPjrtApi."
        )
    device_platform = _DEVICE_PLATFORMS.get(plugin_name, plugin_name)
    _add(Plugin(plugin_name, device_platform, str(library_path), priority, options or {}))


def _add(plugin: Plugin) -> None:
    register(plugin.platform, lambda: _make_backend(plugin))
    registered[plugin.platform] = plugin


def _make_backend(plugin: Plugin) -> Backend:
    """Load a plugin and create its client; record a failure for reports, and raise it."""
    from weft._engine.backends.pjrt.backend import PjrtBackend

    try:
        return PjrtBackend(plugin.device_platform, load_library(plugin), _client_options(plugin))
    except NotImplementedError:  # several processes
        raise
    except Exception as error:
        plugin.failure = str(error).partition("\n")[0]
        if not isinstance(error, DeviceRuntimeError):
            raise
        raise DeviceRuntimeError(
            f"Unable to initialize backend {plugin.platform!r}: {error}\n"
            "  WEFT_PLATFORMS chooses platforms; without it, the first one that works is used."
        ) from None


def load_library(plugin: Plugin) -> Any:
    """Load a plugin once; return its `PluginLibrary`."""
    from weft._engine.backends.pjrt.c_api import PluginLibrary

    if not plugin.path:
        raise DeviceRuntimeError(plugin.failure)
    if plugin.library is None:
        if plugin.platform == "cuda":
            preload_nvidia_libraries()
        plugin.library = PluginLibrary(plugin.platform, plugin.path)
    return plugin.library


def find_plugin(platform: str) -> Plugin | None:
    """Return the plugin of a platform that is registered, installed or named by the environment."""
    names = base.names_of(platform)
    register_installed()
    if not any(name in registered for name in names):
        register_third_party()
    return next((registered[name] for name in names if name in registered), None)


def _client_options(plugin: Plugin) -> dict[str, Any]:
    """Return the options of a client, including those from the environment and the settings."""
    options = dict(plugin.options() if callable(plugin.options) else plugin.options)
    setting = config.pjrt_client_create_options or {}
    if isinstance(setting, str):  # NAME:VALUE;...
        entries = [entry.partition(":") for entry in setting.split(";")]
        setting = {name: value for name, _, value in entries}
    options.update(setting)
    if plugin.device_platform == "gpu":
        return {"platform_name": plugin.platform, **_gpu_options(plugin.platform), **options}
    if plugin.platform != "tpu" and requested_devices():
        options.setdefault("cpu_device_count", requested_devices())
    return options


def _gpu_options(platform: str) -> dict[str, Any]:
    """Return the options for a GPU platform from the environment and the settings."""
    options = {}
    texts = [
        (variable, os.environ.get(variable, ""), *to) for variable, to in _GPU_VARIABLES.items()
    ]
    setting = f"{platform}_visible_devices"
    visible = config.values.get(setting, "all").replace("all", "")
    texts.append((setting, visible, "visible_devices", lambda x: list(map(int, x.split(",")))))
    for source, text, name, parse in texts:
        if text:
            try:
                options[name] = parse(text)
            except ValueError:
                raise ValueError(f"{source} must be a number, got {text!r}.") from None
    return options


def preload_nvidia_libraries() -> list[str]:
    """Load the CUDA libraries of NVIDIA's packages so that the plugin can link to them; return their paths."""
    loaded = []
    folders = [
        folder for root in _package_folders("nvidia") for folder in sorted(root.glob("*/lib"))
    ]
    for name in _NVIDIA_LIBRARIES:
        for path in [path for folder in folders for path in folder.glob(f"lib{name}.so.*")]:
            try:
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue  # the plugin's own error names the missing library
            loaded.append(str(path))
    return loaded


# ---- finding plugins


def _package_folders(name: str) -> list[Path]:
    """Return the folders of a package without importing it; a namespace package may have several."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []


def _find_library(plugin: KnownPlugin) -> str:
    """Return the path of a known plugin, or "". TPU_LIBRARY_PATH overrides the path of libtpu."""
    if plugin.platform == "tpu" and os.environ.get("TPU_LIBRARY_PATH"):
        return os.environ["TPU_LIBRARY_PATH"]
    for library in plugin.libraries:
        package, _, path_in_package = library.partition("/")
        for path in [folder / path_in_package for folder in _package_folders(package)]:
            if path.exists():
                return str(path)
    return ""


def find_versions() -> dict[str, str]:
    """Return the version of each registered plugin, by platform: its distributions' names and versions, or else the size of its library.
    No library is loaded."""
    return {
        plugin.platform: _version_of(Path(plugin.path))
        for plugin in registered.values()
        if plugin.path
    }


def _version_of(path: Path) -> str:
    folder = path.parent
    site = folder.parent.parent if folder.parent.match("jax_plugins") else folder.parent
    stem = folder.name.removeprefix("xla_")
    distributions = sorted(info.stem for info in site.glob(f"*{stem}*.dist-info"))
    if distributions:
        return ", ".join(distributions)
    return (
        f"{path.name} of {path.stat().st_size} bytes"
        if path.is_file()
        else f"{path.name}, which does not exist"
    )


def register_installed() -> None:
    """Register the installed known plugins, and the plugins named by the environment."""
    for known in KNOWN_PLUGINS:
        path = "" if known.platform in registered else _find_library(known)
        if path:
            priority = 300 if known.platform == "tpu" else 200
            _add(Plugin(known.platform, known.device_platform, path, priority, {}))
    named = os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS", "")
    for entry in filter(None, named.split(",")):
        name, _, path = entry.partition(":")
        if name in registered:
            continue
        try:
            if not path:
                raise ValueError(
                    "PJRT_NAMES_AND_LIBRARY_PATHS must be NAME:PATH pairs with commas."
                )
            register_plugin(name, library_path=path, options=_options_from_file(name))
        except Exception as error:
            _add_failure(name, error)


def _add_failure(name: str, error: Exception) -> None:
    """Register a plugin that could not be loaded; using its platform raises the failure."""
    if name not in base.names():
        _add(Plugin(name, name, "", -1, {}, f"{type(error).__name__}: {error}"))


def _options_from_file(name: str) -> dict[str, Any]:
    """Return the options in the JSON file PJRT_<NAME>_CREATE_OPTIONS, or {} without that variable."""

    path = os.environ.get(f"PJRT_{name.upper()}_CREATE_OPTIONS", "")
    return json.loads(Path(path).read_text()).get("create_options", {}) if path else {}


def register_third_party() -> None:
    """Run the plugins of other packages: entry points `jax_plugins`, modules in `jax_plugins`.

    Each is expected to call `register_plugin`; a plugin that fails is listed in reports.
    """
    from importlib.metadata import EntryPoint, entry_points

    known = {library.split("/")[1] for p in KNOWN_PLUGINS for library in p.libraries}
    folders = [str(folder) for folder in _package_folders("jax_plugins")]
    names = [module.name for module in pkgutil.iter_modules(folders)]
    points = [EntryPoint(name, f"jax_plugins.{name}", "jax_plugins") for name in names]
    points += entry_points(group="jax_plugins")  # often the same modules
    for module, point in {point.value: point for point in points}.items():
        if module.rpartition(".")[2] in known:
            continue
        try:
            point.load().initialize()
        except Exception as error:
            _add_failure(point.name, error)


def default_platform() -> str | None:
    """Return the usable platform with the highest priority; None if there is none."""
    for plugin in sorted(registered.values(), key=lambda plugin: -plugin.priority):
        if plugin.priority >= 0 and not (plugin.failure or find_absence(plugin)):
            try:
                base.get(plugin.platform)
            except Exception as error:
                if processes.current() is not None and isinstance(error, NotImplementedError):
                    raise  # otherwise the processes would silently compute separately
                continue  # `failure` has the reason
            return plugin.platform
    return None


def find_absence(plugin: Plugin) -> str:
    """Return the reason why a plugin has no devices here, as far as known without loading it; else "".

    Without a TPU, loading libtpu queries the metadata server of Google's cloud for minutes.
    """
    if plugin.platform != "tpu":
        return ""
    vendors = _PCI_DEVICES.glob("*/vendor")
    has_chips = any(path.read_text().strip() == _GOOGLE_VENDOR for path in vendors)
    return "" if has_chips else "no TPU is attached to this machine"


def describe_plugins() -> list[str]:
    """Return a line for each plugin: platform, path, and its devices or the reason why it is not used."""
    lines = []
    for plugin in registered.values():
        state = plugin.failure or find_absence(plugin)
        if not state:
            try:
                backend: Any = base.get(plugin.platform)
                version = ".".join(map(str, backend.client.library.version))
                devices = backend.devices()
                state = f"{len(devices)} {devices[0].device_kind}, C API {version}"
            except base.UnknownBackendError:
                state = f"not used, as WEFT_PLATFORMS is {config.platforms!r}"
            except Exception as error:
                state = plugin.failure or str(error)
        path = f" ({plugin.path})" if plugin.path else ""
        lines.append(f"{plugin.platform}{path}: {state}")
    return lines


#: platform -> weft's extra that installs its plugin
_EXTRAS = {"tpu": "tpu", "cuda": "cuda13", "gpu": "cuda13", "rocm": "rocm"}


def install_advice(platform: str) -> str:
    """Return a sentence on how to install the plugin of a platform."""
    extra = _EXTRAS.get(platform)
    return f"Install {f'weft with the extra [{extra}]' if extra else 'its package'}."
