"""Public names in messages: as the program spells them, and where a misplaced name is.

In:  a message with names of weft; or a module and a name that it does not have.
Out: the message with JAX's names if the code that called weft imported jax; or the place of the
     name that the program probably meant.

Next to read: `resolver` (the import hook), `names` (the tables).
"""

import importlib.util
import re
import sys
from types import FrameType, ModuleType

from weft._engine.util import source
from weft.compat import names

#: names of functions of other libraries -> the path of a function with this purpose
_OTHER_LIBRARIES = {
    "bmm": "numpy.matmul",
    "cat": "numpy.concatenate",
    "cross_entropy": "nn.log_softmax",
    "expand": "numpy.broadcast_to",
    "fill": "numpy.full",
    "from_numpy": "numpy.asarray",
    "manual_seed": "random.key",
    "masked_fill": "numpy.where",
    "mm": "numpy.matmul",
    "mul": "numpy.multiply",
    "no_grad": "lax.stop_gradient",
    "permute": "numpy.transpose",
    "rand": "random.uniform",
    "randn": "random.normal",
    "randperm": "random.permutation",
    "repeat_interleave": "numpy.repeat",
    "seed": "random.key",
    "sub": "numpy.subtract",
    "tensor": "numpy.array",
    "unsqueeze": "numpy.expand_dims",
}
#: modules that are searched for a misplaced name, in this order
_PLACES = (
    "numpy nn random scipy.special lax numpy.linalg sharding tree scipy.linalg numpy.fft tree_util nn.initializers"
    " debug image ops scipy.stats scipy.signal experimental.multihost_utils experimental.checkify"
).split()
_PATH = re.compile(r"(?<![\w./-])weft((?:\.[A-Za-z_]\w*)+)|(?<![\w./-])wnp(?=\.[A-Za-z_])")


def suggest_name(module: str, name: str) -> str:
    """Return a question with the place of a name that `module`, of weft or jax, does not have; "" if
    no public module has it.

    >>> suggest_name("jax.numpy", "softmax"), suggest_name("weft", "randn"), suggest_name("jax", "no")
    ('Did you mean jax.nn.softmax?', 'Did you mean weft.random.normal?', '')
    """
    package, _, inner = module.partition(".")
    path = None if name.startswith("_") else _find(inner, name)
    return f"Did you mean {package}.{path}?" if path else ""


def _find(inner: str, name: str) -> str | None:
    own = f"jax.{inner}".rstrip(".")
    if name in names.public_names()["jax"] and inner:
        return name
    for place in _PLACES:
        module = f"jax.{place}"
        is_public = name in names.public_names().get(module, ())
        if is_public and module != own and not name.endswith("_p"):
            return f"{place}.{name}"
    if inner and f"jax.{name}" in names.public_names():
        return name
    return _OTHER_LIBRARIES.get(name)


def user_spelling(text: str) -> str:
    """Return a message of weft with `jax.vmap` instead of `weft.vmap` if the caller of weft imported
    jax.

    Names that only weft has are unchanged.
    """
    if not _PATH.search(text) or not _imports_jax():
        return text
    return _PATH.sub(lambda match: _jax_path(match[1]) if match[1] else "jnp", text)


def _jax_path(path: str) -> str:
    """Return the JAX path of a name of weft; the path in weft if JAX has no such name.

    >>> _jax_path(".numpy.where"), _jax_path(".config.update"), _jax_path(".checkpoint.steps")
    ('jax.numpy.where', 'jax.config.update', 'weft.checkpoint.steps')
    """
    inner, _, name = path.rpartition(".")
    while name:
        if names.is_known(f"jax{inner}", name):
            return f"jax{path}"
        if _is_module(f"weft{inner}"):
            break
        inner, _, name = inner.rpartition(".")
    return f"weft{path}"


def _is_module(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _imports_jax() -> bool:
    """Return True unless the code that called weft imported modules of weft and none of jax."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and source.is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return True
    packages = {
        value.__name__.partition(".")[0]
        for value in tuple(frame.f_globals.values())
        if isinstance(value, ModuleType)
    }
    return "jax" in packages or "weft" not in packages
