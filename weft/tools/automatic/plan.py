"""`ShardingPlan`: the result of a search for shardings.

In:   a `Decision` of `partition.auto`, and the names and types of arguments and results.
Out:  shardings, prices, reasons, annotations; a function with these layouts; a file.
Laws: a plan is for one program. Used with another one it raises `ShardingError` and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from weft._engine.api.jit import jit
from weft._engine.api.layouts import flat_shardings
from weft._engine.api.placement.device_put import device_put
from weft._engine.ir.mesh import AUTO, AbstractMesh, Mesh
from weft._engine.ir.program_mesh import to_spec
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.specs import Spec
from weft._engine.partition.auto.partitioning import (
    Decision,
    LayoutPlan,
    LayoutSearch,
)
from weft._engine.partition.auto.realized import MemoryLimit
from weft._engine.partition.cost import CostModel
from weft._engine.partition.partition import PartitionRequest
from weft._engine.runtime.topology import make_mesh
from weft._engine.util import tree
from weft._engine.util.errors import ShardingError
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.record import field, record, replace
from weft.tools.automatic.annotations import WITHIN, Annotation, fewest_annotations
from weft.tools.automatic.device_memory import measured_peak
from weft.tools.automatic.plan_report import PlanReport
from weft.tools.automatic.planned_value import PlannedValue, concrete_mesh, partition_spec
from weft.tools.automatic.pricing import (
    LayoutCost,
    cost_of,
    cost_of_inputs,
    known_layouts,
    spell_price,
)
from weft.tools.automatic.reasons import reason_of_argument
from weft.tools.automatic.value_storage import storage_of

#: the memory of each point of the price of memory, relative to the one before
LESS_MEMORY = 0.9
#: version of the file format
_FORMAT = 2


@record(frozen=False, eq=False)
class ShardingPlan:
    """The shardings of a function that `weft.auto.shardings` found.

    Attributes:

    - `mesh`: the mesh of the shardings.
    - `in_shardings`, `out_shardings`: trees of shardings, like the arguments (a tuple) and the results.
    - `constraints`: the fewest constraints inside the function that reproduce the result; see `annotations`.
    - `cost`: what a call costs: `price` (seconds of a machine, or bytes), bytes that a device sends, most bytes that it holds.
    - `ordinary`: the same for the program that the partitioner makes without a search.
    - `peak`: most bytes that a device holds at a time.
    - `gap`: largest relative distance of the price from the best layouts' price, by the optimizer's bound.
    - `status`: "optimal", "time limit", or "ordinary" if the search found nothing better than the ordinary partitioner.
    """

    __module__ = "weft.auto"

    mesh: Any
    inputs: tuple[PlannedValue, ...]
    outputs: tuple[PlannedValue, ...]
    cost: LayoutCost
    ordinary: LayoutCost
    gap: float
    status: str
    layout_plan: LayoutPlan = field(repr=False)
    donate_argnums: tuple[int, ...] = ()
    function: Callable[..., Any] | None = field(default=None, repr=False)
    in_tree: Any = field(default=None, repr=False)
    out_tree: Any = field(default=None, repr=False)
    decision: Decision | None = field(default=None, repr=False)
    report: PlanReport | None = field(default=None, repr=False)
    search: LayoutSearch | None = field(default=None, repr=False)

    # --- shardings

    @property
    def in_shardings(self) -> Any:
        """The shardings of the arguments: a tuple with a tree for each."""
        return self._tree(self.in_tree, self.inputs, "in_shardings")

    @property
    def out_shardings(self) -> Any:
        """The shardings of the results."""
        return self._tree(self.out_tree, self.outputs, "out_shardings")

    @property
    def constraints(self) -> list[Annotation]:
        """The constraints inside the function that reproduce the plan."""
        return self.annotations()

    @property
    def peak(self) -> int:
        """Most bytes that a device holds at a time."""
        return self.cost.peak

    def _tree(self, structure: Any, values: Sequence[PlannedValue], name: str) -> Any:
        shardings = [NamedSharding(self.mesh, partition_spec(v.spec)) for v in values]
        if structure is None:
            raise ValueError(
                f"plan.{name}: a plan that was loaded has specs by key path, not as a tree. Read plan.inputs and plan.outputs, "
                "or use plan.jit(f) and plan.place(args)."
            )
        return tree.tree_unflatten(structure, shardings)

    # --- use

    def place(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the tuple of positional arguments, moved to the shardings of the plan.

        ValueError for arguments with other key paths than the planned ones.
        """
        leaves, structure = tree.tree_flatten(args)
        paths = [tree.keystr(path) for path, _ in tree.tree_flatten_with_path(args)[0]]
        if paths != [v.path for v in self.inputs]:
            raise ValueError(
                f"plan.place: the arguments are not the planned ones: {_first_difference(paths, self.inputs)}. Give the tuple "
                "of all positional arguments."
            )
        shardings = [NamedSharding(self.mesh, partition_spec(v.spec)) for v in self.inputs]
        return tree.tree_unflatten(structure, [device_put(x, s) for x, s in zip(leaves, shardings)])

    def jit(self, f: Callable[..., Any] | None = None, **options: Any) -> Callable[..., Any]:
        """Return `f` (by default the planned function), jitted with the layouts of the plan.

        `options` are options of `weft.jit`; donated arguments come from the plan. A function whose program differs raises
        `ShardingError` when it is called.
        """
        function = self.function if f is None else f
        if function is None:
            raise ValueError(
                "plan.jit: a plan that was loaded does not hold the function. Give it: plan.jit(f)."
            )
        auto = AUTO(self.layout_plan.mesh, self.layout_plan)
        options.setdefault("donate_argnums", self.donate_argnums)
        return jit(function, in_shardings=auto, out_shardings=auto, **options)

    # --- reasons and comparisons

    def why(self, key_path: str) -> str:
        """Return why an argument has its layout, in a sentence; `params['w']` and the key path `[0]['w']` are the same one."""
        positions = [i for i, v in enumerate(self.inputs) if key_path in (v.name, v.path)]
        if not positions:
            known = ", ".join(v.name for v in self.inputs[:8])
            raise KeyError(
                f"plan.why: no argument has the key path {key_path!r}. Key paths are {known}, ..."
            )
        return self._reason(positions[0])

    def _reason(self, number: int) -> str:
        decision = self._need_decision("why")
        value = self.inputs[number]
        reason = reason_of_argument(
            decision, number + len(decision.program.invars) - len(self.inputs)
        )
        return f"{value.name} is {partition_spec(value.spec)}: {reason}"

    def compare(self, **shardings: Any) -> LayoutComparison:
        """Return the costs of the plan, of well-known layouts, and of `shardings`: prefix trees of input shardings by name."""
        decision = self._need_decision("compare")
        mesh = self.layout_plan.mesh
        costs = {"plan": self.cost, "ordinary partitioner": self.ordinary}
        for name, specs in known_layouts(decision, mesh).items():
            costs[name] = cost_of_inputs(decision, mesh, specs)
        for name, sharding in shardings.items():
            costs[name] = cost_of_inputs(decision, mesh, self._specs(sharding, name))
        return LayoutComparison(costs)

    def _specs(self, given: Any, name: str) -> list[Spec | None]:
        """Return the specs of all arguments of the program for a prefix tree of shardings."""
        decision = self._need_decision("compare")
        variables = decision.program.invars
        count = len(variables) - len(self.inputs)
        mesh = self.layout_plan.mesh
        flat = flat_shardings(
            given,
            self.in_tree,
            [v.aval for v in variables[count:]],
            f"plan.compare: {name}",
            mesh_of=lambda: mesh,
        )
        specs = [
            None if s is None else to_spec(_on_mesh(s, mesh), mesh, v.aval.ndim)
            for s, v in zip(flat, variables[count:])
        ]
        return [None] * count + specs

    def annotations(self, within: float = WITHIN) -> list[Annotation]:
        """Return the fewest constraints with which the ordinary partitioner comes `within` this factor of the plan's price.

        The shardings of arguments and results are given, too. The search is greedy, so fewer may do. If even the layouts of all values do
        not reach the price, the annotations of the cheapest program are returned; the report of the plan states its price.
        """
        decision = self._need_decision("annotations")
        return list(fewest_annotations(decision, self.layout_plan.mesh, within).annotations)

    def price_of_memory(self, points: int = 5) -> list[tuple[int, float]]:
        """Return pairs of the most bytes that a device holds and the price, for plans in less and less memory.

        The first is this plan; each of the at most `points` others may hold 0.9 of the memory of the one before. Each is a search
        with the `seconds` of this plan, which the amount of work usually ends earlier. The list ends where nothing fits.
        Plans that hold more than a later one and are no cheaper are left out.
        """
        decision = self._need_decision("price_of_memory")
        assert self.search is not None  # plans with a decision have it
        curve = [(self.peak, self.cost.price)]
        for _ in range(points):
            limit = MemoryLimit(LESS_MEMORY * curve[-1][0], measured_peak, storage_of)
            ties = tuple(decision.given_specs.ties.items())
            search = replace(self.search, limit=limit, report=None, ties=ties)
            given_specs = decision.given_specs
            request = PartitionRequest(
                decision.program, self.layout_plan.mesh, given_specs.in_specs, given_specs.out_specs
            )
            try:
                other = search.decide(request)
            except ShardingError:
                break
            cost = cost_of(other, other.result)
            while len(curve) > 1 and curve[-1][1] >= cost.price:
                curve.pop()
            curve.append((cost.peak, cost.price))
        return curve

    def _need_decision(self, method: str) -> Decision:
        if self.decision is None:
            raise ValueError(
                f"plan.{method}: a plan that was loaded has no program to search in. Make it again with weft.auto.shardings."
            )
        return self.decision

    # --- text and files

    def _parts(self) -> PlanReport:
        if self.report is None:
            self.report = PlanReport(self)
        return self.report

    def text(self) -> str:
        """Return the report: costs, layouts with reasons, collectives, comparisons, annotations."""
        from weft.tools.automatic.plan_text import plan_text

        return plan_text(self._parts())

    def html(self) -> str:
        """Return the report as a self-contained HTML page, every value drawn as it is sharded."""
        from weft.tools.automatic.plan_page import plan_page

        return plan_page(self._parts())

    def svg(self) -> str:
        """Return a picture of the mesh, the arguments and the results, as they are sharded, as an SVG file."""
        from weft.tools.automatic.plan_picture import plan_picture

        return plan_picture(self._parts())

    def _repr_html_(self) -> str:
        from weft.tools.automatic.plan_page import plan_summary

        return plan_summary(self._parts())

    def __str__(self) -> str:
        return (
            f"plan for {self.layout_plan.mesh.shape_tuple}: {self.cost} ({self.status}, gap {self.gap:.1e}); "
            f"ordinary partitioner: {spell_price(self.ordinary.price, self.ordinary.unit)}"
        )

    def json(self) -> dict[str, Any]:
        """Return everything that `save` writes, as plain data."""
        plan = self.layout_plan
        costs = {
            name: {
                "price": c.price,
                "unit": c.unit,
                "bytes_sent": c.bytes_sent,
                "peak": c.peak,
                "collectives": dict(c.collectives),
            }
            for name, c in (("cost", self.cost), ("ordinary", self.ordinary))
        }
        values = {
            name: [
                {
                    "path": v.path,
                    "name": v.name,
                    "shape": list(v.shape),
                    "dtype": v.dtype,
                    "spec": _plain(v.spec),
                }
                for v in group
            ]
            for name, group in (("inputs", self.inputs), ("outputs", self.outputs))
        }
        return {
            "format": _FORMAT,
            "mesh": {"axes": list(plan.mesh.axis_names), "sizes": list(plan.mesh.axis_sizes)},
            "program": plan.program,
            "in_specs": [_plain(s) for s in plan.in_specs],
            "out_specs": [_plain(s) for s in plan.out_specs],
            "layouts": [[number, _plain(spec)] for number, spec in plan.layouts],
            "dropped": [[*numbers, _plain(spec)] for *numbers, spec in plan.dropped],
            "model": {name: getattr(plan.cost, name) for name in CostModel.__match_args__},
            "gap": self.gap,
            "status": self.status,
            "donate_argnums": list(self.donate_argnums),
            **costs,
            **values,
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to a file, which `weft.auto.load` reads."""
        Path(path).write_text(json.dumps(self.json(), indent=1) + "\n", encoding="utf-8")


@record
class LayoutComparison:
    """Costs of layouts by name; prints as a table."""

    costs: Mapping[str, LayoutCost]

    def __getitem__(self, name: str) -> LayoutCost:
        return self.costs[name]

    def __str__(self) -> str:
        width = max(map(len, self.costs))
        least = self.costs["plan"].price
        lines: list[str] = []
        for name, cost in self.costs.items():
            ratio = cost.price / least if least else 1.0
            lines.append(f"{name:{width}}  {ratio:7.3f}x  {cost}")
        return "\n".join(lines)


def load(path: str | PathLike[str], mesh: Mesh | AbstractMesh | None = None) -> ShardingPlan:
    """Return the plan that `ShardingPlan.save` wrote.

    Parameters:

    - `path`: the file.
    - `mesh`: the mesh to use; by default one of this process's devices with the plan's axes.

    Raises `ValueError` for a file that is no plan, and `ShardingError` for a mesh with other axes. When the plan is used, the
    program of the function is compared with the planned one.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        axes, sizes = tuple(data["mesh"]["axes"]), tuple(data["mesh"]["sizes"])
        is_known = data["format"] == _FORMAT
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"weft.auto.load: {path} is not a sharding plan: {error!r}.") from None
    if not is_known:
        raise ValueError(
            f"weft.auto.load: {path} has format {data['format']}; this version of weft reads {_FORMAT}. Make the plan again."
        )
    own = make_mesh(sizes, axes) if mesh is None else mesh
    if (tuple(own.axis_names), tuple(own.axis_sizes)) != (axes, sizes):
        raise ShardingError(
            f"weft.auto.load: the plan is for a mesh {dict(zip(axes, sizes))}, and the given one is {dict(own.shape)}. "
            "Plans depend on the mesh; make one for this mesh."
        )
    plan = LayoutPlan(
        concrete_mesh(own),
        data["program"],
        tuple(_spec(s) for s in data["in_specs"]),
        tuple(_spec(s) for s in data["out_specs"]),
        tuple((number, _spec(spec) or ()) for number, spec in data["layouts"]),
        CostModel(**data["model"]),
        tuple((after, number, _spec(spec) or ()) for after, number, spec in data["dropped"]),
    )
    inputs, outputs = (
        tuple(
            PlannedValue(
                v["path"], v["name"], tuple(v["shape"]), v["dtype"], _spec(v["spec"]) or ()
            )
            for v in data[name]
        )
        for name in ("inputs", "outputs")
    )
    cost, ordinary = (LayoutCost(**data[name]) for name in ("cost", "ordinary"))
    return ShardingPlan(
        own,
        inputs,
        outputs,
        cost,
        ordinary,
        data["gap"],
        data["status"],
        plan,
        tuple(data["donate_argnums"]),
    )


def _on_mesh(sharding: Sharding, mesh: Mesh) -> Sharding:
    is_named = isinstance(sharding, NamedSharding)
    return NamedSharding(mesh, sharding.spec) if is_named else sharding


def _first_difference(paths: Sequence[str], inputs: Sequence[PlannedValue]) -> str:
    for path, value in zip(paths, inputs):
        if path != value.path:
            return f"there is {path} where the plan has {value.path}"
    return f"there are {quantity(len(paths), 'leaf')}, the plan has {len(inputs)}"


def _plain(spec: Spec | None) -> list[Any] | None:
    return None if spec is None else [list(axes) for axes in spec]


def _spec(plain: list[Any] | None) -> Spec | None:
    return None if plain is None else tuple(tuple(axes) for axes in plain)
