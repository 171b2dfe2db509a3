"""What every test shares: eight virtual devices, the verifier after each stage, derandomized random cases.

Marks listed in `OPT_IN` are left out unless the `-m` expression names them. Of the cases of a test that is marked `sampled(n)` every n-th
runs, all with `-m "exhaustive or not exhaustive"`.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest

# Before weft is imported anywhere: both are read when the first device or program is made.
os.environ.setdefault("WEFT_NUM_DEVICES", "8")
os.environ.setdefault("WEFT_VERIFY", "1")
os.environ.setdefault("WEFT_TRACEBACK", "full")  # a failing test shows where inside weft it failed

OPT_IN = ("slow", "mpi", "root", "oracle", "exhaustive", "bench")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell has what it runs in the background ignore it, and its children


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="run only the tests K, K + N, K + 2N, ...")


def pytest_configure(config: pytest.Config) -> None:
    from hypothesis import settings

    settings.register_profile(
        "quick", derandomize=True, deadline=None, max_examples=20, database=None
    )
    settings.register_profile("nightly", deadline=None, max_examples=500)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = config.option.markexpr or ""
    hidden = {mark for mark in OPT_IN if mark not in named}
    left_out = {
        item
        for item in items
        if hidden & {mark.name for mark in item.iter_markers()} or _is_stated_elsewhere(item)
    }
    if "exhaustive" in hidden and not any(
        "::" in argument for argument in config.args
    ):  # who names a case has it run
        left_out |= _beyond_the_sample(items)
    if config.option.part:
        first, step = map(int, config.option.part.split("/"))
        part = [item for item in items if item not in left_out][first % step :: step]
        left_out = set(items) - set(part)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _beyond_the_sample(items: list[pytest.Item]) -> set[pytest.Item]:
    """All but every n-th case of the tests that are marked `sampled(n)`."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {
        item
        for group in cases.values()
        for k, item in enumerate(group)
        if k % group[0].get_closest_marker("sampled").args[0]
    }


def _is_stated_elsewhere(item: pytest.Item) -> bool:
    """Whether an example belongs to a function that a public module forwards: it runs in the module that states the function."""
    module, _, name = getattr(getattr(item, "dtest", None), "name", "").rpartition(".")
    forwarded = vars(sys.modules.get(module, sys)).get(name)
    stated = getattr(forwarded, "__wrapped__", forwarded)
    return bool(module) and getattr(stated, "__globals__", {}).get("__name__", module) != module


@pytest.fixture(scope="session", autouse=True)
def _names_of_examples(doctest_namespace: dict[str, object]) -> None:
    """The names that examples in docstrings assume, as `weft.__doc__` says."""
    import numpy

    import weft

    doctest_namespace.update(np=numpy, weft=weft, wnp=weft.numpy, lax=weft.lax)


@pytest.fixture(scope="module", autouse=True)
def _few_objects() -> None:
    """Objects of earlier modules are left alone by the collector, which else goes over millions of them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _same_settings() -> Iterator[None]:
    """Settings that a module changes for the whole process are restored: other modules would run without checks, for example."""
    from tests.harness.settings import changed_settings
    from weft._engine.util.config import config

    before = config.values
    yield
    assert changed_settings(before) == {}


@pytest.fixture(scope="session", autouse=True)
def _native_dispatch() -> None:
    """Where it was never compiled it would come into force at some moment, and the heap with it, whose bytes tests count."""
    import weft
    from weft._engine.backends.cpu import native_entries

    native_entries.install(type(weft.jit(lambda: None)), weft.Array)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Functions are named by their name: their addresses would differ between the workers of one run."""
    return getattr(val, "__name__", type(val).__name__) if callable(val) else None
