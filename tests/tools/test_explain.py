"""`weft.explain`: causes and remedies, loops, shard_map, assertions, the page and the command."""

import functools
import html
import re
from types import SimpleNamespace

import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.numpy as wnp
from tests.harness.page_tags import Tags
from tests.harness.processes import run_weft
from weft._engine.partition.cost import CAUSES
from weft.sharding import NamedSharding, PartitionSpec as P
from weft.tools.advice import advise


@pytest.fixture(scope="module")
def mesh():
    return weft.make_mesh((4, 2), ("data", "model"))


def placed(mesh, shape, *spec):
    return weft.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))


def constrained(mesh, *spec):
    return lambda x: lax.with_sharding_constraint(x + 1, NamedSharding(mesh, P(*spec)))


#: what is asked -> function of the mesh that gives a function and its arguments; kind, cause, and words of the remedy
CASES = {
    "an operand that lies otherwise": (
        lambda m: (
            lambda x, y: x + y,
            [placed(m, (8, 8), "data"), placed(m, (8, 8), None, "data")],
        ),
        "all_to_all",
        "operand",
        r"Give [xy] the sharding P\(",
    ),
    "a sum over a split dim": (
        lambda m: (
            lambda x, w: x @ w,
            [placed(m, (8, 16), None, "model"), placed(m, (16, 4), "model")],
        ),
        "psum",
        "sum",
        "a reduce_scatter sends half the bytes",
    ),
    "a maximum": (
        lambda m: (lambda x: x.max(0), [placed(m, (8, 16), "data")]),
        "pmax",
        "reduction",
        "Split another dim",
    ),
    "a prefix sum": (
        lambda m: (lambda x: wnp.cumsum(x, 0), [placed(m, (8, 16), "data")]),
        "all_gather",
        "along",
        "cumsum",
    ),
    "neighbours": (
        lambda m: (lambda x: wnp.roll(x, 1, 0), [placed(m, (8, 16), "data")]),
        "ppermute",
        "edges",
        "Split another dim",
    ),
    "a constraint": (
        lambda m: (constrained(m, None, "data"), [placed(m, (8, 8), "data")]),
        "all_to_all",
        "constraint",
        r"Ask for P\('data'\)",
    ),
    "a result": (
        lambda m: (
            weft.jit(lambda x: x, out_shardings=NamedSharding(m, P(None, "data"))),
            [placed(m, (8, 8), "data")],
        ),
        "all_to_all",
        "output",
        r"P\('data'\), .* in out_shardings",
    ),
    "what shard_map takes": (
        lambda m: (
            weft.shard_map(lambda x: x, mesh=m, in_specs=P("model"), out_specs=P("model")),
            [placed(m, (8, 8), None, "model")],
        ),
        "all_to_all",
        "enters",
        r"Give (x|args\[0\]) the sharding P\('model'\)",
    ),
    "what shard_map asks for": (
        lambda m: (
            weft.shard_map(
                lambda x: lax.psum(x, "data"), mesh=m, in_specs=P("data"), out_specs=P()
            ),
            [placed(m, (8, 8), "data")],
        ),
        "psum",
        "asked",
        "^$",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_causes_and_remedies(mesh, case):
    make, kind, cause, remedy = CASES[case]
    fun, arguments = make(mesh)
    (r,) = weft.explain(fun, *arguments).collectives
    assert (r.kind, r.cause) == (kind, cause) and cause in CAUSES
    assert re.search(remedy, r.suggestion), r.suggestion
    assert r.reason and r.operands
    assert cause == "output" or ("test_explain.py" in r.source and r.equation)


def test_every_cause_that_is_not_the_users_own_has_a_remedy():
    from weft._engine.partition.cost import CollectiveRecord
    from weft._engine.partition.reshard import Placement
    from weft._engine.util.record import replace

    class Equation:
        primitive = "op"
        outvars = (SimpleNamespace(aval=np.ones(4)),)

    place = Placement(((), ("data",)))
    record = CollectiveRecord(
        "psum", ("data",), 4, (1,), np.float32, None, "", eqn=Equation, before=place, after=place
    )
    assert [cause for cause in CAUSES if not advise(replace(record, cause=cause))] == ["asked"]


def test_a_suggestion_that_is_followed_removes_the_collective(mesh):
    x, y = placed(mesh, (8, 8), "data"), placed(mesh, (8, 8), None, "data")
    (r,) = weft.explain(wnp.add, x, y).collectives
    spec = eval(re.search(r"P\(.*?\)(?=\.)", r.suggestion)[0])
    moved = {"x": x, "y": y} | {
        r.argument: weft.device_put({"x": x, "y": y}[r.argument], NamedSharding(mesh, spec))
    }
    weft.explain(lambda x, y: x + y, moved["x"], moved["y"]).assert_no()


def test_loops_count_trips_and_while_loops_report_unknown(mesh):
    x = placed(mesh, (8, 8), "data")
    scanned = weft.explain(
        lambda x: lax.scan(lambda c, _: (wnp.cumsum(c, 0), None), x, None, length=5)[0], x
    )
    assert scanned.counts == {"all_gather": 5} and "5 x all_gather over data" in str(scanned)
    (r,) = scanned.collectives
    assert r.bytes == 5 * 3 * 32 and not r.open_ended
    (r,) = weft.explain(
        lambda x: lax.while_loop(lambda c: c[0, 0] < 9, lambda c: wnp.cumsum(c, 0), x), x
    ).collectives[-1:]
    assert r.open_ended and r.title.endswith("B per iteration")


def test_recomputed_collectives_keep_the_users_line(mesh):
    def loss(w):
        gather = functools.partial(lax.all_gather, axis_name="data", tiled=True)
        layer = weft.checkpoint(lambda w: wnp.sin(gather(w)).sum())  # here
        return lax.psum(layer(w), "data")

    mapped = weft.shard_map(loss, mesh=mesh, in_specs=P("data"), out_specs=P())
    told = weft.explain(weft.grad(mapped), placed(mesh, (8, 8), "data"))
    lines = [r.source for r in told.collectives if r.kind in ("all_gather", "reduce_scatter")]
    assert len(lines) >= 2 and all("# here" in line for line in lines)


def test_assertions(mesh):
    x, w = placed(mesh, (8, 16), "data", "model"), placed(mesh, (16, 4), "model")
    told = weft.explain(lambda x, w: x @ w, x, w)
    sent = told.bytes
    assert (
        told.assert_no("all_gather", "all-to-all")
        .assert_no(axes="data")
        .assert_count(1, psum=1, ppermute=0)
        is told
    )
    assert told.assert_bytes(max=sent) is told
    for failing, words in [
        (lambda: told.assert_no("all_reduce"), "should have no psum; it has 1 collective"),
        (lambda: told.assert_no(axes=["model"]), "no collective over model"),
        (lambda: told.assert_no(), "no collective; it has"),
        (lambda: told.assert_count(2), "2 collectives"),
        (lambda: told.assert_count(psum_scatter=1), "1 x reduce_scatter; it has 0 collectives"),
        (lambda: told.assert_bytes(max=sent - 1), f"at most {sent - 1:,} B in all collectives"),
        (lambda: told.assert_bytes("psum", max=0), "at most 0 B in psum"),
    ]:
        with pytest.raises(AssertionError) as error:
            failing()
        assert words in str(error.value)
        assert "test_explain.py" in str(error.value) or "0 collectives" in str(error.value)
    with pytest.raises(ValueError, match="no collective 'gather'"):
        told.assert_no("gather")


def test_the_page_is_whole_and_needs_nothing(mesh, tmp_path):
    def f(x, w):
        y = weft.shard_map(
            lambda u: lax.psum(u, "model"),
            mesh=mesh,
            in_specs=P("data", "model"),
            out_specs=P("data"),
        )(x)
        return lax.scan(lambda c, _: (c @ w, c.sum()), x, None, length=3), y, w.reshape(2, 2, 4, 16)

    told = weft.explain(f, placed(mesh, (8, 16), "data", "model"), placed(mesh, (16, 16), "model"))
    told.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    tags = Tags()
    tags.feed(text)
    assert (
        tags.open == []
        and tags.loads == []
        and "script" not in tags.count
        and "http" not in text
        and "url(" not in text
    )
    assert tags.count["details"] >= 2 and "prefers-color-scheme: dark" in text
    assert tags.count["svg"] >= 2 + len(told.partition.placed_eqns) / 2
    assert (
        text.count("<title>device 0</title>") >= 1
        and "psum over model" in text
        and "one value per device" in text
    )
    assert "test_explain.py" in text and told._repr_html_() in text


@pytest.mark.parametrize(
    ("total", "advice"),
    [
        (lambda x: x.sum(), "No sum is needed if the summed dim is not split over data."),
        (lambda x: x.max(), ""),
    ],
    ids=["sum", "maximum"],
)
def test_totals_get_no_advice_for_dims(mesh, total, advice):
    (r,) = weft.explain(total, placed(mesh, (8, 4), "data")).collectives
    assert r.suggestion == advice


def test_one_device_has_a_page_too():
    text = weft.explain(lambda x: x + 1, np.ones(3)).to_html()
    assert "It runs on one device" in text and "0 collectives, 0 B" in text


def test_blocks_of_shard_map_have_no_sharding(mesh):
    double = weft.shard_map(lambda x: 2 * x, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    page = html.unescape(weft.explain(double, np.ones((8, 3), np.float32)).to_html())
    assert '<td class="code">float32[2,3]</td>' in page


def test_arguments_and_results_go_by_their_key_paths(mesh):
    def f(params, *xs, scale):
        return {"out": (xs[0] + xs[1]) * params["layers"][0]["up"] * scale, "kept": [scale]}

    params = {"layers": [{"down": np.ones(3), "up": placed(mesh, (8, 8), None, "data")}]}
    told = weft.explain(
        f,
        params,
        placed(mesh, (8, 8), "data"),
        placed(mesh, (8, 8), None, "data"),
        scale=placed(mesh, (8, 8)),
    )
    moved = [r for r in told.collectives if r.argument]
    assert moved and {r.argument for r in moved} <= {"params['layers'][0]['up']", "xs[0]", "xs[1]"}
    assert all(r.suggestion.startswith(f"Give {r.argument} the sharding P(") for r in moved)
    page = html.unescape(told.to_html())
    for name in (
        "params['layers'][0]['down']",
        "params['layers'][0]['up']",
        "xs[0]",
        "xs[1]",
        "scale",
        "result['out']",
        "result['kept'][0]",
    ):
        assert f">{name}</td>" in page
    assert f"{moved[0].argument}: P(" in page and f"layout   {moved[0].argument}: P(" in str(told)
    assert "argument 0" not in page + str(told)


def test_closed_over_arrays_are_named_as_such(mesh):
    y = placed(mesh, (8, 8), None, "data")
    (r,) = weft.explain(lambda x: x + y, placed(mesh, (8, 8), "data")).collectives
    assert r.argument in ("x", "a closed-over array") and r.suggestion.startswith(
        f"Give {r.argument} the sharding"
    )


PROGRAM = """
import jax, numpy as np, sys
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("i",))
put = lambda shape, *spec: jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))
print("sum", jax.jit(lambda x: x.sum(0))(put((8, 4), "i"))[0], sys.argv[1:])
jax.jit(lambda params, x: params["up"] + x)({"down": put((8,)), "up": put((8, 8), None, "i")}, put((8, 8), "i"))
sys.exit(3)
"""


@pytest.mark.parametrize(
    "line",
    ["--html page.html --devices 8 program.py -a", "program.py -a --devices 8 --html page.html"],
)
def test_the_command_runs_a_program_and_explains_it(tmp_path, line):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run_weft("explain", *line.split(), cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert (
        done.stdout.startswith("sum 8.0 ['-a']")
        and "psum over i  28 B" in done.stdout
        and "program.py:6" in done.stdout
    )
    assert re.search(r"\d+ programs were compiled, 2 with collectives", done.stdout)
    page = html.unescape((tmp_path / "page.html").read_text())
    assert "psum over i" in page and ">params['down']<" in page and ">params['up']<" in page
    assert 'href="#program-1"' in page and 'id="program-1"' in page
    assert "The page of all programs is page.html." in done.stdout
    assert "argument 0" not in page + done.stdout


def test_requested_sums_are_combined(mesh):
    def step(params, x):  # the sum of each gradient comes with the transpose of a cast
        return weft.grad(lambda params: sum(wnp.sin(x * w).sum() for w in params))(params)

    mapped = weft.shard_map(step, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
    params = [np.float32(i) for i in range(4)]
    (r,) = (
        weft.explain(mapped, params, placed(mesh, (8, 4), "data")).assert_count(psum=1).collectives
    )
    assert len(r.operands) == 4 and r.cause == "asked"
    grouped = lambda x: (
        lax.psum(x, "data", axis_index_groups=[[0, 1], [2, 3]]) + lax.psum(x * 2, "data")
    )
    mapped = weft.shard_map(
        grouped, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False
    )
    weft.explain(mapped, placed(mesh, (8, 4), "data")).assert_count(psum=2)
