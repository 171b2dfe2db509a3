"""The roofline of the machine of a profile."""

from __future__ import annotations

from weft._engine.codegen.runtime import pool
from weft._engine.partition.auto.machine_rates import this_cpu
from weft._engine.util.record import record


@record
class MachineFacts:
    """The peak FLOP/s in float32 and the bytes/s of memory of all threads together, by the model of the machine."""

    threads: int
    flops: float
    bandwidth: float

    def least_seconds(self, flops: int, nbytes: int) -> float:
        """Return the least seconds of a step by the roofline.

        >>> MachineFacts(2, 1e9, 1e8).least_seconds(2000, 100)
        2e-06
        """
        return max(flops / self.flops, nbytes / self.bandwidth)


def machine_facts() -> MachineFacts:
    """Return the facts about this machine."""
    machine, threads = this_cpu(), pool.num_threads()
    return MachineFacts(
        threads, machine.flops("float32") * threads, machine.memory_bandwidth * threads
    )
