"""A sample of the random calls, and the record of a campaign."""

import sys

import pytest

from tests.fuzz import campaign
from tests.fuzz.calls import Call, call_of, fault_of, functions, names_an_argument
from weft._engine.util import source

SAMPLE = 200


def test_a_sample_of_calls():
    assert campaign.run(0, SAMPLE, seconds=300.0) == []  # a busy machine is not a hang


def test_every_public_function_is_called():
    names = {name for name, _, _ in functions()}
    assert len(names) > 600
    assert {
        "weft.jit",
        "weft.numpy.add",
        "weft.lax.gather",
        "weft.random.normal",
        "weft.tree.map",
        "weft.scipy.stats.norm.cdf",
    } <= names


def test_a_seed_is_one_call():
    assert [str(call_of(seed)) for seed in range(20)] == [str(call_of(seed)) for seed in range(20)]


def _call(fun):
    return Call("weft.trial", fun, {"size": "many"}, ["size"], [])


def _raises(error):
    def trial(size):
        raise error

    return trial


@pytest.mark.parametrize(
    "error, is_fault",
    [
        (TypeError("trial: wrong"), False),
        (ValueError("size is wrong"), False),
        (IndexError("got 'many'"), False),
        (TypeError("wrong"), True),
        (KeyError("size"), True),
        (RuntimeError("size"), True),
        (AssertionError("size"), True),
        (MemoryError("size"), True),
    ],
)
def test_faults(error, is_fault):
    assert (fault_of(_call(_raises(error))) is not None) == is_fault
    assert names_an_argument("the size", _call(_raises(error)))


@pytest.mark.parametrize(
    "body, said",
    [
        ("[][3]", "IndexError from inside"),
        ("{}[size]", "KeyError from inside"),
        ("size.nothing", None),
        ("max.nothing", "AttributeError from inside"),
        ("1 + size", None),
    ],
)
def test_what_no_check_foresaw_is_a_fault(body, said):
    scope = {}
    exec(compile(f"def trial(size): return {body}", source.__file__, "exec"), scope)
    fault = fault_of(_call(source.guard(scope["trial"], "weft", "trial")))
    assert (fault is None) == (said is None) and (said is None or fault.startswith(said))


def test_workers_that_hang_or_die_are_replaced(monkeypatch):
    play = (
        "import sys, time, os\nfirst, last = map(int, sys.argv[-1].split(':'))\nfor seed in range(first, last):\n"
        "  print('call', seed, 'f()', flush=True)\n  if seed == 2: time.sleep(60)\n  if seed == 4: os.abort()\n"
        "  if seed == 5: print('fault f: KeyError', flush=True)"
    )
    popen = campaign.subprocess.Popen
    monkeypatch.setattr(
        campaign.subprocess,
        "Popen",
        lambda command, **kw: popen([sys.executable, "-c", play, command[-1]], **kw),
    )
    monkeypatch.setattr(campaign, "STARTING", 0.0)
    found = campaign.run(0, 7, seconds=1.0)
    assert [(fault.seed, fault.kind) for fault in found] == [
        (2, "hang"),
        (4, "crash"),
        (5, "error"),
    ]


def test_ranges_that_are_missing(tmp_path):
    record = tmp_path / "calls.txt"
    assert campaign.recorded(record) == []
    record.write_text("seeds 250:500\nfault 3 error text\nseeds 0:100\n")
    assert campaign.recorded(record) == [(0, 100), (250, 500)]
    assert campaign.missing(campaign.recorded(record), 500) == [(100, 250), (500, 750), (750, 850)]
