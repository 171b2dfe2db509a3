"""The parser of collectives in texts of both systems; weft's texts agree with its records."""

from pathlib import Path

import numpy as np
import pytest

import weft
import weft.lax
import weft.numpy as wnp
from weft.sharding import NamedSharding, PartitionSpec as P

HOME = Path(weft.__file__).parents[1] / "benchmarks"


SCRIPT = "communication"


@pytest.fixture(scope="module")
def communication(script):
    return script


LINE = "ENTRY %main (p: f32[8]) -> f32[8] {{\n  %c = {} {}(%p), {}\n}}\n"


@pytest.mark.parametrize(
    "shape, kind, attributes, sent",
    [
        ("f32[8]{0}", "all-reduce", "replica_groups={{0,1,2,3}}", 48),
        ("f32[8]{0}", "all-gather", "replica_groups=[2,4]<=[8]", 24),
        (
            "(f32[8]{0}, bf16[4]{0})",
            "all-reduce",
            "replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_1'}",
            40,
        ),
        (
            "f32[8]{0}",
            "reduce-scatter",
            "replica_groups=mesh['i'=2,'j'=1,'k'=4], device_ids=([4,2]T(1,0)) {'i', 'k'}",
            224,
        ),
        ("f32[8]{0}", "all-to-all", "channel_id=1, replica_groups={{0,1},{2,3}}", 16),
        ("f32[8]{0}", "collective-permute", "source_target_pairs={{0,1},{1,0}}", 32),
        ("f32[8]{0}", "collective-permute", "source_target_pairs={{0,0},{1,1}}", 0),
    ],
)
def test_one_collective(communication, shape, kind, attributes, sent):
    assert communication.read(LINE.format(shape, kind, attributes)) == ({kind: 1}, sent)


def test_loops_count_their_trips(communication):
    body = "%body (p: f32[8]) -> f32[8] {\n  %c = f32[8]{0} all-reduce(%p), replica_groups={{0,1}}\n}\n"
    loop = 'ENTRY %main (p: f32[8]) -> f32[8] {\n  %w = f32[8]{0} while(%p), body=%body, backend_config={"known_trip_count":{"n":"5"}}\n}\n'
    assert communication.read(body + loop) == ({"all-reduce": 5}, 160)


def nested(x):
    """Loops in loops, a branch, and collectives of both kinds of programs."""

    def step(c, _):
        c, _ = weft.lax.scan(lambda c, _: (wnp.cumsum(c, 0), None), c, None, length=3)
        return weft.lax.cond(c[0, 0] > 0, lambda c: c + 1, lambda c: c, c), c.sum()

    x, sums = weft.lax.scan(step, x, None, length=2)
    return x, sums


def test_the_text_says_what_the_records_say(communication):
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    place = lambda shape, *spec: weft.device_put(
        np.ones(shape, np.float32), NamedSharding(mesh, P(*spec))
    )
    programs = {
        "nested": (nested, [place((16, 8), "a", "b")]),
        "swapped": (lambda x, y: x + y, [place((8, 8), "a", "b"), place((8, 8), "b", "a")]),
        "maximum": (lambda x: x.max(0) + x.sum(0), [place((8, 8), ("a", "b"))]),
        "roll": (lambda x: wnp.roll(x, 1, 0), [place((8, 8), ("a", "b"))]),
        "mapped": (
            weft.shard_map(
                lambda x: weft.lax.psum(x, "b") + weft.lax.all_gather(x, "a").sum(0),
                mesh=mesh,
                in_specs=P("a", "b"),
                out_specs=P("a", "b"),
                check_vma=False,
            ),
            [place((8, 8), "a", "b")],
        ),
        "groups": (
            weft.shard_map(
                lambda x: weft.lax.psum(x, "a", axis_index_groups=[[0, 2], [1, 3]]),
                mesh=mesh,
                in_specs=P("a", "b"),
                out_specs=P("a", "b"),
                check_vma=False,
            ),
            [place((8, 8), "a", "b")],
        ),
    }
    for name, (fun, arguments) in programs.items():
        report = weft.explain(fun, *arguments)
        counts, sent = communication.read(report.text)
        assert sent == report.bytes > 0, name
        assert sum(counts.values()) == sum(report.counts.values()), name


def test_the_table_names_every_program_once(communication):
    measured = {"strategies": {"one": [{"all-reduce": 2}, 64]}}
    text = communication.table(measured, {"strategies": {"one": [{}, 128]}})
    assert (
        "| one | 64 | 128 | 2 all-reduce | none |" in text
        and "| strategies | 1 | 1 | 0 | 0 |" in text
    )


def test_recorded_table_shows_no_program_sending_more():
    rows = [
        line.split("|")
        for line in (HOME / "COMMUNICATION.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    sent = [
        [int(cell.replace(",", "")) for cell in row[2:4]]
        for row in rows
        if row[2].strip().replace(",", "").isdigit()
        and len(row) == 7
        and not row[4].strip().isdigit()
    ]
    assert len(sent) > 100 and all(ours <= theirs for ours, theirs in sent)
