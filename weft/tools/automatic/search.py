"""`weft.auto.shardings`: search the shardings of a function and return them as a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine import pipeline
from weft._engine.api.jit import jit
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.ir.mesh import AUTO, AbstractMesh, Mesh, check_automatic_axes
from weft._engine.ir.program_mesh import to_spec
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.partition.auto.machine import Machine, find_machine
from weft._engine.partition.auto.partitioning import (
    GAP,
    ORDINARY,
    SECONDS,
    Decision,
    LayoutSearch,
    MemoryLimit,
    layout_plan,
)
from weft._engine.util import tree
from weft._engine.util.record import replace
from weft.tools.automatic.device_memory import measured_peak
from weft.tools.automatic.plan import ShardingPlan
from weft.tools.automatic.planned_value import PlannedValue, concrete_mesh
from weft.tools.automatic.pricing import cost_of


def shardings(
    f: Callable[..., Any],
    *args: Any,
    mesh: Mesh | AbstractMesh,
    memory: float | None = None,
    donate_argnums: int | Sequence[int] = (),
    machine: Machine | str | None = None,
    seconds: float = SECONDS,
    gap: float = GAP,
    seed: int = 0,
) -> ShardingPlan:
    """Return the plan of shardings that makes `f` cheapest on `mesh`.

    Parameters:

    - `f`: a function of arrays. Constraints inside of it, and `shard_map`s, are kept.
    - `args`: its arguments: arrays or `ShapeDtypeStruct`s. Those that are committed to `mesh`, or have a sharding, keep it;
      types with explicit shardings become plain ones.
    - `mesh`: the mesh; an `AbstractMesh` needs no devices.
    - `memory`: most bytes that a device may hold.
    - `donate_argnums`: arguments whose memory results take, such as a state. Results of their types keep their shardings.
    - `machine`: a `Machine` or the name of a preset such as "h100", whose rates price the program in seconds. Without one,
      prices are bytes sent.
    - `seconds`: most seconds of the search.
    - `gap`: the search stops when the price is at most this far, relatively, from the best one.
    - `seed`: programs with equal seeds get equal plans. The search is deterministic; other seeds break ties alike.

    Raises `TypeError` for a mesh that is none, and `ShardingError` for a mesh with explicit or manual axes and for a `memory`
    in which no layout fits.

    The search is the integer program of docs/design/0049: all layouts are chosen at once, one mesh axis after the other.

    >>> mesh = weft.make_mesh((8,), ("x",))
    >>> types = weft.ShapeDtypeStruct((64, 512), np.float32), weft.ShapeDtypeStruct((512, 4096), np.float32)
    >>> plan = weft.auto.shardings(lambda x, w: wnp.tanh(x @ w), *types, mesh=mesh)
    >>> [s.spec for s in plan.in_shardings]
    [P(), P(None, 'x')]
    """
    if not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(
            f"weft.auto.shardings: mesh must be a Mesh, got {type(mesh).__name__}. Make one with weft.make_mesh(shape, names)."
        )
    check_automatic_axes(mesh, "weft.auto.shardings")
    decisions: list[Decision] = []
    search = LayoutSearch(
        concrete_mesh(mesh),
        find_machine(machine) if isinstance(machine, str) else machine,
        seconds,
        gap,
        limit=None if memory is None else MemoryLimit(memory, measured_peak),
        report=decisions.append,
    )
    auto = AUTO(search.mesh)
    args = tree.tree_map(lambda x: _without_explicit_type(x, search.mesh), args)
    given = [_given_sharding(x, search.mesh) or auto for x in tree.tree_leaves(args)]
    in_shardings = tree.tree_unflatten(tree.tree_structure(args), given)
    jitted = jit(f, in_shardings=in_shardings, out_shardings=auto, donate_argnums=donate_argnums)
    lowered = jitted.lower(*args)
    request = replace(lowered.compile_request(), automatic=AUTO(search.mesh, search))
    _, local = pipeline.lower(request)
    (decision,) = decisions
    structures = tree.tree_structure(args), lowered.out_tree
    ins = local.ins[len(local.ins) - len(given) :]
    numbers = (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums)
    return ShardingPlan(
        mesh,
        _planned_values(structures[0], ins, search.mesh),
        _planned_values(structures[1], local.outs, search.mesh),
        cost_of(decision, decision.result),
        cost_of(decision, decision.ordinary),
        decision.solution.gap,
        _status(decision),
        layout_plan(decision, search.mesh),
        numbers,
        f,
        *structures,
        decision,
        search=search,
    )


def _planned_values(structure: Any, blocks: Sequence[Any], mesh: Mesh) -> tuple[PlannedValue, ...]:
    """Return the arguments or results of a tree with their layouts."""
    numbered = tree.tree_unflatten(structure, range(structure.num_leaves))
    paths = [tree.keystr(path) for path, _ in tree.tree_flatten_with_path(numbered)[0]]
    values: list[PlannedValue] = []
    for path, block in zip(paths, blocks):
        aval = block.spec.aval
        spec = to_spec(block.spec.sharding, mesh, aval.ndim)
        values.append(
            PlannedValue(path, tuple(aval.shape), aval.dtype.name, spec or ((),) * aval.ndim)
        )
    return tuple(values)


def _status(decision: Decision) -> str:
    if decision.method == ORDINARY:
        return "ordinary"
    return "optimal" if decision.solution.is_complete else "time limit"


def _given_sharding(x: Any, mesh: Mesh) -> Sharding | None:
    """Return the sharding that an argument keeps: of a committed array on the mesh, or of a type."""
    sharding = getattr(x, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not getattr(x, "committed", True):
        return None
    return (
        sharding.with_spec(sharding.spec)
        if sharding.mesh == mesh
        else NamedSharding(mesh, sharding.spec)
    )


def _without_explicit_type(x: Any, mesh: Mesh) -> Any:
    """Return an argument; one whose type has explicit axes as a plain type with the same layout over `mesh`."""
    sharding = getattr(x, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not sharding.mesh.explicit_axes:
        return x
    return ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, sharding.spec))
