"""The planner: a model of the step time and memory of transformer training on large machines, and a search over mesh shapes.

In:   a model (a name, a config, a traced loss function or a `TransformerModel`), a cluster, a batch size, a memory limit.
Out:  the fastest `TrainingPlan`s that fit, and for each rejected class of candidates the reason.
Laws: no array is created and nothing is compiled or measured: seconds come from the constants of `partition.auto.machine_rates`
      and from shapes. More bandwidth or a higher rate never makes a plan slower; a higher ZeRO stage never needs more memory.

Read in this order:
  transformer     the shape of a model: parameters, FLOPs
  layout          how a step is split: the degrees of parallelism, micro batch, ZeRO stage, recomputation
  layer_cost      seconds of one layer and one micro batch on one device
  step_time       seconds of a step, by cause; `pipeline_schedule` its timeline
  memory          bytes that a device holds, by cause
  search          the candidates, the reasons for rejections, the ranking
  cluster, training_plan, report, api      what users see
  named_models, model_config, traced_model where models come from
  verification    the first choice compiled ahead of time for attached plugins
"""
