"""Stubs of `jax` for editors and type checkers, which do not run the import hook.

In:   the tables of JAX's names in `weft.compat.names`, and the stubs and sources of weft.
Out:  the text of `jax/**/__init__.pyi`: each name is imported from weft, where it has its types. `weft shim install` writes them. Names
      that weft refuses are left out.
"""

from __future__ import annotations

from weft.compat import names, resolver
from weft.tools.stubs.module_names import stub_names

_HEAD = '"""The types of {module}, provided by weft. `weft shim install` wrote this file."""\n\n'
_VERSIONS = "\n__version__: str\n__version_info__: tuple[int, int, int]\n"
#: an object of the engine that has types under a public name alone
_PUBLIC = {"weft._engine.api.checkpointing:checkpoint": "weft:remat"}


def jax_stubs() -> dict[str, str]:
    """Return the text of every file, by its path below the folder of packages."""
    offered = {module for module in names.known_modules() if resolver.is_offered(module)}
    modules = sorted(
        module
        for module in offered
        if module.partition(".")[0] == "jax" and not names.is_internal(module)
    )
    texts = {
        f"{module.replace('.', '/')}/__init__.pyi": _text(module, modules) for module in modules
    }
    return {"jax/py.typed": "", **texts}


def _text(module: str, modules: list[str]) -> str:
    imports: dict[str, list[str]] = {}
    listed = {*names.public_names().get(module, ()), *names.ELSEWHERE.get(module, ())}
    for name in sorted(listed):
        place = _place(module, name)
        if place is not None:
            source, _, old = place.partition(":")
            imports.setdefault(source, []).append(f"{old} as {name}")
    below = {known.rpartition(".")[2] for known in modules if known.rpartition(".")[0] == module}
    objects = {entry.split()[-1] for entries in imports.values() for entry in entries}
    if below - objects:
        imports[module] = [f"{name} as {name}" for name in below - objects]
    lines = [
        f"from {source} import (\n    " + ",\n    ".join(sorted(entries)) + ",\n)\n"
        for source, entries in sorted(imports.items())
    ]
    return "".join([_HEAD.format(module=module), *lines, _VERSIONS * (module == "jax")])


def _place(module: str, name: str) -> str | None:
    """Return where type checkers find the object of a JAX name: a public name of weft if it has one."""
    for places in resolver.places(module, name):
        place = _PUBLIC.get(places.split()[0], places.split()[0])
        source, _, old = place.partition(":")
        is_inside = source.startswith("weft._engine.")
        if is_inside and stub_names("weft").get(old) in ((source, old), ("weft", old)):
            return f"weft:{old}"
        if old in stub_names(source):
            return place
    return None
