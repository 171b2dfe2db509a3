"""Programs for runtimes behind the IFRT interface, which weft does not have: each name refuses when it is called."""

from types import SimpleNamespace

from weft._engine.util.refusals import refused_function

_NAMES = """
    make_hlo_program make_colocated_python_program make_plugin_program make_xla_compile_options
    make_colocated_python_compile_options make_plugin_compile_options
"""
_REASON = "weft's backends run programs in this process, and have no IFRT interface."

ifrt_programs = SimpleNamespace(
    **{
        name: refused_function(__name__, name, f"ifrt_programs.{name}: {_REASON}")
        for name in _NAMES.split()
    }
)
