"""Partitioning of a global program, given some shardings, into the local program that each device runs.

In:   a Jaxpr on global shapes; shardings of some arguments and results, sharding constraints, explicitly sharded types.
Out:  `partition.PartitionResult`: a Jaxpr on local shapes with explicit collectives, the shardings of arguments and results, and a
      record of each collective with its bytes and cause. `stack` maps that program over the mesh for virtual devices.
Laws: shardings never change values, except the rounding of reductions. Decisions depend on the kinds, factors (`ir.factors`) and
      split rules (`partition.rules.split_rule`) of ops, and on the specs of collectives (`ir.collective_spec`), never on names.
      Costs are numbers of bytes and of operations, computed from shapes, not measured. A module imports only from modules
      below it in this list.

Read in this order:
  partition        the entry point: meshes, given specs, results
  propagation      a target spec for every variable, by a fixpoint over factor rules
  spmd             a whole program; `regions`: loops, branches, shard_map, callbacks; `nested_shard_map` prepares shard_maps
  partitioner      one equation: strategies, their costs, local equations
  strategies       the candidates; `partial_sums`: deferral of reductions; `halo`: rows of neighboring blocks;
                   `split_context`: the interface of split rules; `combine`: independent reductions become one
  reshard          the cheapest collectives between two placements; `local_equations` binds them; `padding`: uneven dims
  shard_check      checks of the types of all shards and of the participants of collectives, on every compilation
  cost, values     constants and records; values of the local program
  auto             machines, and the seconds of work and of collectives on them
  stack            the local program on storage blocks, with mesh axes as leading dims

docs/partitioning.md describes the user's view; docs/adding-a-partition-rule.md and docs/adding-a-collective.md extensions.
"""
