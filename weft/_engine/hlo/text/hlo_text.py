"""HLO: a module as the text that XLA's parser reads.

In:   a module of functions, made from a global program (`lowered_text`) or from the program of one
      device (`compiled_hlo`).
Out:  computations, each after the computations that it calls; the entry is the last.
Laws: no computation reads values of another: a region receives the values it captures in a tuple,
      and constants are written again. Devices are numbered by their position in the mesh, and
      `known_trip_count` is the number of iterations of a loop, so that communication can be counted
      from the text alone.
Next: `compiled_hlo` writes the kernels of a compiled program, `cost` counts what a module does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft._engine.hlo.lowering import HloLowering, symbol
from weft._engine.hlo.rules import arrays, elementwise, products, reductions, regions  # noqa: F401  (fill the table of rules)
from weft._engine.hlo.sharding_text import donation_aliases, tiles_text
from weft._engine.hlo.text import hlo_forms  # noqa: F401  (fills the tables of forms)
from weft._engine.hlo.text.computation import (
    FUNCTIONS,
    HloModule,
    result_type,
    value_type,
)
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.transforms.key_physicalization import physicalize


def lower_global(jaxpr: Jaxpr, name: str) -> HloLowering:
    """Return a global program as a module for HLO."""
    lowering = HloLowering(name, FUNCTIONS)
    lowering.function(physicalize(jaxpr), "main", public=True)
    return lowering


def lowered_text(
    jaxpr: Jaxpr,
    name: str,
    in_shardings: Sequence = (),
    out_shardings: Sequence = (),
    donated: Sequence[bool] = (),
    places: bool = True,
) -> str:
    """Return a global program, before it is partitioned, as HLO.

    The shardings of arguments and results are None where they are unspecified. With `places` every
    instruction has its place in the user's program.
    """
    module = lower_global(jaxpr, name)
    main = module.functions["main"].body
    tiles = lambda shardings, values: [
        "" if s is None else tiles_text(s, x.ndim) for s, x in zip(shardings, values)
    ]
    devices = max(
        {s.num_devices for s in (*in_shardings, *out_shardings) if s is not None}
        | set(module.sizes),
        default=1,
    )
    ins, outs = tiles(in_shardings, main.args), tiles(out_shardings, main.results)
    shared = {
        result: arg
        for arg, result in donation_aliases(main, donated, ins, outs).items()
        if result is not None
    }
    return module_text(module, f"jit_{name}", devices, shared, ins, outs, places=places)


def module_text(
    module: HloLowering,
    name: str,
    devices: int = 1,
    aliases: Mapping[int, int] | None = None,
    in_tiles: Sequence[str] = (),
    out_tiles: Sequence[str] = (),
    facts: str = "",
    places: bool = True,
) -> str:
    """Return a module as HLO; `facts` are attributes of the module."""
    writer = HloModule(module, places)
    main = module.functions["main"].body
    entry = writer.computation("main", main, head="ENTRY ", in_tiles=in_tiles, out_tiles=out_tiles)
    place = lambda i: f"{{{i}}}" if len(main.results) != 1 else "{}"
    shared = ", ".join(
        f"{place(i)}: ({arg}, {{}}, may-alias)" for i, arg in sorted((aliases or {}).items())
    )
    layout = f"({', '.join(map(value_type, main.args))})->{result_type(main.results)}"
    header = [
        f"HloModule {symbol(name)}",
        *([facts] if facts else []),
        *([f"input_output_alias={{ {shared} }}"] if shared else []),
        f"entry_computation_layout={{{layout}}}",
        *([f"num_partitions={devices}"] if devices > 1 else []),
    ]
    return "\n\n".join([", ".join(header), *writer.texts, entry]) + "\n"


# --- types and literals -----------------------------------------------------------------------------------------------
