"""Clusters: a machine, and how many nodes of it there are.

In:   a `Machine` and counts; or text such as "h100:64".
Out:  `Cluster`, whose `machine` has the cluster's own node size.
"""

from __future__ import annotations

from weft._engine.partition.auto.machine_rates import Machine, find_machine
from weft._engine.util.record import record, replace


@record
class Cluster:
    """`nodes` nodes with `per_node` devices each.

    `per_node` defaults to the machine's `devices_per_node`. Counts below 1 and more devices in a node than the links of the
    machine connect raise `ValueError`, a machine that is none raises `TypeError`.

    >>> cluster = weft.auto.Cluster(weft.auto.MACHINES["h100"], nodes=8)
    >>> cluster.devices, str(cluster)
    (64, '8 nodes of 8 x h100')
    """

    __module__ = "weft.auto"

    machine: Machine
    nodes: int = 1
    per_node: int = 0

    def __post_init__(self) -> None:
        machine = self.machine
        if not isinstance(machine, Machine):
            raise TypeError(
                f"Cluster: machine = {machine!r} is not a Machine. Use weft.auto.find_machine({str(machine)!r}), or "
                "Cluster.parse for text such as 'h100:64'."
            )
        per_node = self.per_node or machine.devices_per_node
        if self.nodes < 1 or per_node < 1:
            raise ValueError(
                f"Cluster: nodes = {self.nodes}, per_node = {self.per_node}. Counts are at least 1."
            )
        if per_node > machine.devices_per_node:
            raise ValueError(
                f"Cluster: per_node = {per_node}, but the links of {machine.name!r} connect {machine.devices_per_node} "
                "devices. Use more nodes, or a `Machine` with another `devices_per_node`."
            )
        if machine.torus_dims:  # each chip of a pod brings its share of the network
            share = machine.network_bandwidth * per_node / machine.devices_per_node
            machine = replace(machine, network_bandwidth=share)
        object.__setattr__(self, "machine", replace(machine, devices_per_node=per_node))
        object.__setattr__(self, "per_node", per_node)

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.nodes * self.per_node

    def __str__(self) -> str:
        nodes = f"{self.nodes} node{'s' if self.nodes > 1 else ''} of "
        return f"{nodes}{self.per_node} x {self.machine.name}"

    @staticmethod
    def parse(text: str) -> Cluster:
        """Return the cluster that `MACHINE:DEVICES` or `MACHINE:NODESxDEVICES` names.

        Other text, an unknown machine and a number of devices that does not fill nodes raise `ValueError`.

        >>> [str(Cluster.parse(text)) for text in ("h100:64", "a100:4", "tpu-v5e:2x256")]
        ['8 nodes of 8 x h100', '1 node of 4 x a100', '2 nodes of 256 x tpu-v5e']
        """
        name, _, counts = text.partition(":")
        machine = find_machine(name)
        nodes, cross, per_node = counts.partition("x")
        if not (nodes.isdigit() and (per_node.isdigit() or not cross)):
            raise ValueError(
                f"Cluster.parse: {text!r} does not say how many devices there are. Write MACHINE:DEVICES or "
                "MACHINE:NODESxDEVICES, as in h100:64 or h100:8x8."
            )
        if cross:
            return Cluster(machine, int(nodes), int(per_node))
        devices = int(nodes)
        per_node = min(devices, machine.devices_per_node) or 1
        if devices < 1 or devices % per_node:
            raise ValueError(
                f"Cluster.parse: {devices} devices do not fill nodes of {per_node} x {name}. Use a multiple of {per_node}, "
                "or write MACHINE:NODESxDEVICES."
            )
        return Cluster(machine, devices // per_node, per_node)
