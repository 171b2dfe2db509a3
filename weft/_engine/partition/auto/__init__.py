"""Automatic sharding: the cost of work and of collectives on a machine.

In:   facts about a machine: rates, bandwidths, latencies, sizes.
Out:  seconds of matmuls, memory traffic and collectives (`machine_rates`).
Laws: costs are pure functions of records. More bandwidth never costs more time.
"""
