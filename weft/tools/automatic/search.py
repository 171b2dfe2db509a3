"""`weft.auto.shardings`: search the shardings of a function and return them as a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine import pipeline
from weft._engine.api.flat import argument_names, signature_of
from weft._engine.api.jit import jit
from weft._engine.api.stages import result_paths
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.ir.mesh import AUTO, AbstractMesh, Mesh, check_automatic_axes
from weft._engine.ir.program_mesh import to_spec
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.partition.auto.machine_rates import Machine, find_machine
from weft._engine.partition.auto.partitioning import (
    GAP,
    ORDINARY,
    SECONDS,
    Decision,
    LayoutSearch,
    layout_plan,
)
from weft._engine.partition.auto.realized import MemoryLimit
from weft._engine.util import tree
from weft._engine.util.record import record, replace
from weft.tools.automatic.device_memory import measured_peak
from weft.tools.automatic.plan import ShardingPlan
from weft.tools.automatic.planned_value import PlannedValue, concrete_mesh
from weft.tools.automatic.pricing import cost_of
from weft.tools.automatic.value_storage import storage_of


@record
class PlannedFunction:
    """A function of arrays with the types of its arguments.

    names     names of the leaves of the arguments; by default from the function's parameters
    carried   pairs of a leaf of the results and the leaf of the arguments that it is in the next call
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    donate_argnums: int | Sequence[int] = ()
    names: Sequence[str] = ()
    carried: Sequence[tuple[int, int]] = ()


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
    function = PlannedFunction(f, args, donate_argnums)
    return plan_function(function, SearchOptions(mesh, machine, memory, seconds, gap))


@record
class SearchOptions:
    """The mesh, the price model and the limits of a search; see `shardings`."""

    mesh: Mesh | AbstractMesh
    machine: Machine | str | None = None
    memory: float | None = None
    seconds: float = SECONDS
    gap: float = GAP

    def search(self, **options: Any) -> LayoutSearch:
        """Return the search."""
        machine = self.machine
        limit = None if self.memory is None else MemoryLimit(self.memory, measured_peak, storage_of)
        return LayoutSearch(
            concrete_mesh(self.mesh),
            find_machine(machine) if isinstance(machine, str) else machine,
            self.seconds,
            self.gap,
            limit=limit,
            **options,
        )


def plan_function(function: PlannedFunction, options: SearchOptions) -> ShardingPlan:
    """Return the plan of a function."""
    decisions: list[Decision] = []
    count = len(tree.tree_leaves(function.args))
    carried = tuple((out, number - count) for out, number in function.carried)
    search = options.search(carried=carried, report=decisions.append)
    args = tree.tree_map(lambda x: _without_explicit_type(x, search.mesh), function.args)
    auto = AUTO(search.mesh)
    shardings = [_given_sharding(x, search.mesh) or auto for x in tree.tree_leaves(args)]
    in_shardings = tree.tree_unflatten(tree.tree_structure(args), shardings)
    numbers = function.donate_argnums
    jitted = jit(
        function.function, in_shardings=in_shardings, out_shardings=auto, donate_argnums=numbers
    )
    lowered = jitted.lower(*args)
    request = replace(lowered.compile_request(), automatic=AUTO(search.mesh, search))
    _, local = pipeline.lower(request)
    (decision,) = decisions
    structures = tree.tree_structure(args), lowered.out_tree
    ins = local.ins[len(local.ins) - len(shardings) :]
    names = function.names or _names(function.function, structures[0])
    return ShardingPlan(
        options.mesh,
        _planned_values(structures[0], names, ins, search.mesh),
        _planned_values(structures[1], result_paths(structures[1]), local.outs, search.mesh),
        cost_of(decision, decision.result),
        cost_of(decision, decision.ordinary),
        decision.solution.gap,
        _status(decision),
        layout_plan(decision, search.mesh),
        (numbers,) if isinstance(numbers, int) else tuple(numbers),
        function.function,
        *structures,
        decision,
        search=search,
    )


def _names(f: Callable[..., Any], structure: Any) -> list[str]:
    """Return the names of the leaves of positional arguments, from the parameters of `f`."""
    numbered = tree.tree_unflatten(structure, range(structure.num_leaves))
    return argument_names(signature_of(f), numbered, {})


def _planned_values(
    structure: Any, names: Sequence[str], blocks: Sequence[Any], mesh: Mesh
) -> tuple[PlannedValue, ...]:
    """Return the arguments or results of a tree with their names and layouts."""
    numbered = tree.tree_unflatten(structure, range(structure.num_leaves))
    paths = [tree.keystr(path) for path, _ in tree.tree_flatten_with_path(numbered)[0]]
    values: list[PlannedValue] = []
    for path, name, block in zip(paths, names, blocks, strict=True):
        aval = block.spec.aval
        spec = to_spec(block.spec.sharding, mesh, aval.ndim)
        dims = spec or ((),) * aval.ndim
        values.append(PlannedValue(path, name, tuple(aval.shape), aval.dtype.name, dims))
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
