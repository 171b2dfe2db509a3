"""Names for the IFRT interface, which weft does not have; each raises an error when it is called."""

from types import SimpleNamespace

from weft._engine.util.refusals import refused_function, refused_names

ifrt_programs = SimpleNamespace(
    **{name: refused_function(__name__, name) for name in refused_names(__name__)}
)
