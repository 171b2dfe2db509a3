"""Partitioning: from a global program and a few given layouts to the program that every device runs.

In:   a Jaxpr on global shapes; shardings of some arguments and results, sharding constraints, explicitly sharded types.
Out:  `partition.PartitionResult`: a Jaxpr on local shapes with explicit collectives, the layout of everything, and a record of
      each collective with its bytes and cause. `stack` maps that program over the mesh for the engine of one machine.
Laws: the layout never changes values, only their rounding in reductions. Ops are known by their kind, factors (`ir.factors`) and
      split rules (`partition.rules.split_rule`), never by name; collectives by their records (`ir.collective_spec`). Costs are bytes
      sent and work, counted, not measured. Imports flow down this list.

Read in this order:
  partition        the entry: meshes, given specs, results
  propagation      a target spec for every variable, by a fixpoint over factor rules
  spmd             a whole program; `regions` loops, branches, shard_map, callbacks; `nested_shard_map` prepares these
  partitioner      one equation: strategies, their costs, local equations
  strategies       the candidates; `partial_sums` how long reductions can be deferred; `halo` rows of neighbours;
                   `split_context` what split rules may ask; `combine` independent reductions become one
  reshard          the cheapest collectives between two placements; `emit` binds them; `padding` uneven dims
  shard_check      the types of all shards, and what the participants of collectives must agree on; on every compilation
  cost, values     constants and records; values of the local program
  auto             machines, and the seconds of work and of collectives on them
  stack            the local program on storage blocks, mesh axes as leading dims

docs/partitioning.md shows what users see; docs/adding-a-partition-rule.md and docs/adding-a-collective.md add to it.
"""
