"""Published training runs: the model's errors on them, by group. `python -m tests.planner.published_runs` prints the table.

In:   steps per second, tokens per second or FLOP/s that papers and benchmark pages state.
Out:  `RUNS`, each with the seconds of its step; `MACHINES_OF`, the machine of each group, with its fitted numbers.

Sources:
- narayanan: Narayanan et al. 2021 (arXiv:2104.04473), table 1: A100, weak scaling from 1.7 to 1008 billion parameters.
- korthikanti: Korthikanti et al. 2022 (arXiv:2205.05198), table 5: A100, full recomputation against sequence parallelism with
  selective recomputation.
- torchtitan: Liang et al. 2024 (arXiv:2410.06511), tables 1 to 5: H100 with 500 W and HBM2e.
- mpt: MosaicML 2023, README.md of scripts/train/benchmarking in llm-foundry: H100, FSDP.
- megatron-bridge: NVIDIA, Megatron-Bridge performance summary (2025): H100, 8-bit floats.
- llama3: Grattafiori et al. 2024 (arXiv:2407.21783), table 4: H100, 8,192 tokens.
- maxtext: Google 2024, README.md and configs/v5e/32b.sh of MaxText: TPU v5e.
- palm: Chowdhery et al. 2022 (arXiv:2204.02311), section 4: TPU v4, two pods.

Fitted numbers: one. `matmul_efficiency` of the machine of torchtitan, on its two runs without tensor parallelism
(`fitted_low_power_efficiency`); its other four runs are predictions. The efficiencies of A100 and H100 come from published
microbenchmarks (`partition.auto.machine_rates`), the TPUs have the defaults: all runs on them are predictions. The constants of
the model that no machine states (softmax in fused attention, contention) were chosen once, with the errors of all groups in view.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import mean

from weft._engine.partition.auto.machine_rates import MACHINES, Machine
from weft._engine.planner.layout import Overlap, TrainingLayout, TrainingPrecision
from weft._engine.planner.named_models import find_model
from weft._engine.planner.step_time import step_time
from weft._engine.planner.transformer import TransformerModel
from weft._engine.util.record import replace


@dataclass(frozen=True)
class PublishedRun:
    """One published run: the model, the training plan, and the seconds of a step."""

    group: str
    label: str
    model: TransformerModel
    layout: TrainingLayout
    seconds: float

    def predicted(self, machine: Machine | None = None) -> float:
        """Return the model's seconds."""
        return step_time(self.model, self.layout, machine or MACHINES_OF[self.group]).seconds

    def error(self, machine: Machine | None = None) -> float:
        """Return the model's relative error: positive if it is too slow."""
        return self.predicted(machine) / self.seconds - 1


MACHINES_OF = {
    "narayanan": MACHINES["a100"],
    "korthikanti": MACHINES["a100"],
    # Llama pretraining hosts (Grand Teton): power limited to 500 W, 2.4 TB/s and 96 GB of HBM2e
    "torchtitan": replace(
        MACHINES["h100"],
        name="h100-500w",
        memory_bandwidth=2.4e12,
        memory=96 * 2**30,
        matmul_efficiency=0.55,
    ),
    "mpt-more": MACHINES["h100"],
    "mpt-a100": MACHINES["a100"],
    "llama3": MACHINES["h100"],
    "maxtext": MACHINES["tpu-v5e"],
    "mpt": MACHINES["h100"],
    "megatron-bridge": MACHINES["h100"],
    "palm": MACHINES["tpu-v4"],
}


WIDE_GRADIENTS = TrainingPrecision(gradient_bytes=4)
HALF_GRADIENTS = TrainingPrecision(gradient_bytes=2)
FLOAT8 = TrainingPrecision("float8_e4m3fn", gradient_bytes=2)


def megatron_gpt(hidden: int, layers: int, heads: int) -> TransformerModel:
    """Return a model of the Megatron papers, whose attention stores its scores."""
    return TransformerModel(
        hidden, layers, heads, 2048, 51200, flash=False, causal=False, dropout=True
    )


def narayanan() -> Iterator[PublishedRun]:
    """Table 1: heads, hidden, layers, tensor, pipeline, GPUs, batch, TFLOP/s per GPU, micro batch and interleave (section 5)."""
    rows = (
        (1.7, 24, 2304, 24, 1, 1, 32, 512, 137, 8, 1),
        (3.6, 32, 3072, 30, 2, 1, 64, 512, 138, 8, 1),
        (7.5, 32, 4096, 36, 4, 1, 128, 512, 142, 4, 1),
        (18.4, 48, 6144, 40, 8, 1, 256, 1024, 135, 4, 1),
        (39.1, 64, 8192, 48, 8, 2, 512, 1536, 138, 4, 1),
        (76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140, 2, 1),
        (145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148, 2, 2),
        (310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155, 1, 1),
        (529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163, 1, 1),
        (1008, 160, 25600, 128, 8, 64, 3072, 3072, 163, 1, 1),
    )
    for size, heads, hidden, layers, tensor, pipeline, gpus, batch, rate, micro, chunks in rows:
        model = megatron_gpt(hidden, layers, heads)
        layout = TrainingLayout(
            batch,
            micro,
            data=gpus // tensor // pipeline,
            tensor=tensor,
            pipeline=pipeline,
            interleave=chunks,
            precision=HALF_GRADIENTS,
        )
        flops = 96 * batch * 2048 * layers * hidden**2  # equation 3, with recomputation
        flops *= 1 + 2048 / (6 * hidden) + 51200 / (16 * layers * hidden)
        yield PublishedRun(
            "narayanan", f"{size}B on {gpus}", model, layout, flops / (rate * 1e12 * gpus)
        )


def korthikanti() -> Iterator[PublishedRun]:
    """Table 5: hidden, layers, heads, pipeline, batch, micro batch, interleave (table 3), seconds of both techniques."""
    rows = (
        ("22B", 6144, 48, 64, 1, 4, 4, 1, 1.42, 1.10),
        ("175B", 12288, 96, 96, 8, 64, 1, 3, 18.13, 13.75),
        ("530B", 20480, 105, 128, 35, 280, 1, 3, 49.05, 37.83),
        ("1T", 25600, 128, 160, 64, 512, 1, 1, 94.42, 71.49),
    )
    for size, hidden, layers, heads, pipeline, batch, micro, chunks, full, divided in rows:
        model = megatron_gpt(hidden, layers, heads)
        layout = TrainingLayout(
            batch,
            micro,
            tensor=8,
            pipeline=pipeline,
            interleave=chunks,
            precision=HALF_GRADIENTS,
        )
        yield PublishedRun("korthikanti", f"{size} full recomputation", model, layout, full)
        selective = replace(layout, recompute="selective", sequence_parallel=True)
        label = f"{size} sequence parallel, selective"
        yield PublishedRun("korthikanti", label, model, selective, divided)


def from_rate(
    group: str, label: str, model: TransformerModel, layout: TrainingLayout, rate: float
) -> PublishedRun:
    """Return a run that is published as tokens per second and device."""
    seconds = layout.batch * model.seq / (rate * layout.devices)
    return PublishedRun(group, label, model, layout, seconds)


FSDP = Overlap(data=0.95)
ASYNC = Overlap(data=0.95, tensor=0.5)


def torchtitan() -> Iterator[PublishedRun]:
    """Llama 3 with FSDP, tensor parallelism and asynchronous tensor parallelism."""
    small, large = find_model("llama3-8b"), find_model("llama3-70b")
    fsdp = TrainingLayout(
        16, 2, data=8, zero=3, recompute="selective", precision=WIDE_GRADIENTS, overlap=FSDP
    )
    split = replace(fsdp, batch=96, micro_batch=12, tensor=8, sequence_parallel=True)
    wide = replace(split, batch=512, micro_batch=16, data=32, recompute="full")
    for label, model, layout, rate in (
        ("8B FSDP 8", small, fsdp, 6667),
        ("8B FSDP 128", small, replace(fsdp, batch=256, data=128), 6514),
        ("70B FSDP 32, tensor 8", large, wide, 597.3),
        ("70B FSDP 32, async tensor 8", large, replace(wide, overlap=ASYNC), 652.4),
        ("8B FSDP 8, tensor 8", small, split, 4378),
        ("8B FSDP 8, async tensor 8", small, replace(split, overlap=ASYNC), 4809.4),
    ):
        yield from_rate("torchtitan", label, model, layout, rate)


#: size -> hidden, layers, heads
MPT_SHAPES = {
    "7B": (4096, 32, 32),
    "13B": (5120, 40, 40),
    "30B": (7168, 48, 56),
    "70B": (8192, 80, 64),
}


def mpt_run(
    group: str, size: str, gpus: int, rate: float, micro: int, accumulated: int = 1
) -> PublishedRun:
    """Return a run at 2048 tokens with FSDP; the 7B model keeps all activations."""
    model = TransformerModel(*MPT_SHAPES[size], seq=2048, vocab=50432)
    layout = TrainingLayout(
        micro * gpus * accumulated,
        micro,
        data=gpus,
        zero=3,
        recompute="none" if size == "7B" else "full",
        precision=WIDE_GRADIENTS,
        overlap=FSDP,
    )
    return from_rate(group, f"{size} FSDP {gpus}", model, layout, rate)


def mpt() -> Iterator[PublishedRun]:
    """MPT: size, GPUs, tokens per second and GPU, micro batch."""
    for row in (
        ("7B", 8, 10643, 6),
        ("13B", 128, 5080, 16),
        ("30B", 256, 2148, 8),
        ("70B", 512, 1007, 8),
    ):
        yield mpt_run("mpt", *row)


def more_of_mpt() -> Iterator[PublishedRun]:
    """The other runs of the large-scale table with fully sharded models, and two others."""
    for row in (
        ("7B", 128, 10475, 6),
        ("7B", 256, 10119, 6),
        ("7B", 512, 9670, 6),
        ("13B", 256, 4989, 16),
        ("13B", 512, 4952, 16),
        ("30B", 128, 2199, 8),
        ("30B", 512, 2115, 8),
        ("30B", 32, 2308, 14, 3),
        ("70B", 64, 1039, 8, 4),
        ("70B", 128, 1058, 8),
        ("70B", 256, 1035, 8),
    ):
        yield mpt_run("mpt-more", *row)
    yield mpt_run("mpt-a100", "70B", 64, 410, 8, 4)
    yield mpt_run("mpt-a100", "70B", 32, 373, 2, 16)


def megatron_bridge() -> Iterator[PublishedRun]:
    """Llama 3 in 8-bit floats."""
    small, large, huge = (find_model(f"llama3-{size}") for size in ("8b", "70b", "405b"))
    overlap = Overlap(data=0.9, tensor=0.5)
    fsdp = TrainingLayout(
        128,
        data=8,
        zero=3,
        recompute="none",
        precision=replace(FLOAT8, gradient_bytes=4),
        overlap=FSDP,
    )
    piped = TrainingLayout(
        128,
        data=2,
        tensor=4,
        pipeline=8,
        interleave=5,
        zero=1,
        recompute="none",
        sequence_parallel=True,
        precision=FLOAT8,
        overlap=overlap,
    )
    wide = replace(piped, batch=512, data=8, tensor=8, interleave=8, context=2)
    for label, model, layout, rate in (
        ("8B FSDP 8", small, fsdp, 14451),
        ("70B tensor 4, pipeline 8, batch 128", large, piped, 1602),
        ("70B tensor 4, pipeline 8, batch 256", large, replace(piped, batch=256), 1621),
        ("405B tensor 8, pipeline 8, context 2, batch 512", huge, wide, 292),
        ("405B tensor 8, pipeline 8, context 2, batch 1536", huge, replace(wide, batch=1536), 311),
    ):
        yield from_rate("megatron-bridge", label, model, layout, rate)


def palm() -> Iterator[PublishedRun]:
    """PaLM 540B on two pods of 3072 chips: 238,300 tokens per second."""
    layout = TrainingLayout(
        2048,
        4,
        data=512,
        tensor=12,
        zero=3,
        sequence_parallel=True,
        precision=HALF_GRADIENTS,
        overlap=Overlap(data=0.95, tensor=0.5),
    )
    model = find_model("palm-540b")
    yield from_rate("palm", "540B tensor 12, data 512", model, layout, 238.3e3 / 6144)


def llama3() -> Iterator[PublishedRun]:
    """Table 4: GPUs, data axis, TFLOP/s per GPU. Stages of 8 layers, in chunks of one, embedding and head as a layer each."""
    model = find_model("llama3-405b")
    for gpus, data, rate in ((8192, 64, 430), (16384, 128, 400)):
        layout = TrainingLayout(
            2048,
            data=data,
            tensor=8,
            pipeline=16,
            interleave=8,
            zero=1,
            recompute="none",
            sequence_parallel=True,
            overlap=Overlap(data=0.9, tensor=0.5),
        )
        seconds = model.flops_per_token * 2048 * model.seq / (rate * 1e12 * gpus)
        yield PublishedRun("llama3", f"405B on {gpus}", model, layout, seconds)


def maxtext() -> Iterator[PublishedRun]:
    """The config "32b" on a v5e pod: 132 TFLOP/s per chip, 4 sequences each, full recomputation; its scale gives 40 billion."""
    model = TransformerModel(
        8192, 32, 64, 2048, 32000, feed_forward=28672, head_dim=256, gated=True
    )
    layout = TrainingLayout(1024, 4, data=256, zero=3, precision=HALF_GRADIENTS, overlap=FSDP)
    seconds = model.flops_per_token * 1024 * model.seq / (132e12 * 256)
    yield PublishedRun("maxtext", "32b FSDP 256", model, layout, seconds)


RUNS = (*narayanan(), *korthikanti(), *torchtitan(), *mpt(), *megatron_bridge(), *palm())
#: runs that were added after all constants were chosen
HELD_OUT_RUNS = (*more_of_mpt(), *llama3(), *maxtext())
LOW_POWER_FIT = ("8B FSDP 8", "8B FSDP 128")


def fitted_low_power_efficiency() -> float:
    """Return the `matmul_efficiency`, in hundredths, with the smallest error on the runs of `LOW_POWER_FIT`."""
    runs = [run for run in RUNS if run.group == "torchtitan" and run.label in LOW_POWER_FIT]
    machine = MACHINES_OF["torchtitan"]

    def error(hundredths: int) -> float:
        changed = replace(machine, matmul_efficiency=hundredths / 100)
        return mean(abs(run.error(changed)) for run in runs)

    return min(range(40, 90), key=error) / 100


def errors_by_group(runs: Iterable[PublishedRun] = RUNS) -> dict[str, list[float]]:
    """Return the relative errors of each group."""
    errors: dict[str, list[float]] = {}
    for run in runs:
        errors.setdefault(run.group, []).append(run.error())
    return errors


def main() -> None:
    """Print the runs and the errors of each group."""
    for run in (*RUNS, *HELD_OUT_RUNS):
        time = step_time(run.model, run.layout, MACHINES_OF[run.group])
        parts = " ".join(f"{k} {v:.2f}" for k, v in time.parts.items() if v > 0.005 * run.seconds)
        print(
            f"{run.group:16} {run.label:50} {run.seconds:8.3f} {time.seconds:8.3f} {run.error():+7.1%}  {parts}"
        )
    for group, errors in errors_by_group((*RUNS, *HELD_OUT_RUNS)).items():
        sizes = [abs(error) for error in errors]
        print(f"{group:16} {len(errors)} runs: mean {mean(sizes):.1%}, worst {max(sizes):.1%}")
    sizes = [abs(error) for errors in errors_by_group().values() for error in errors]
    print(f"all {len(sizes)} runs: mean {mean(sizes):.1%}, worst {max(sizes):.1%}")


if __name__ == "__main__":
    sys.exit(main())
