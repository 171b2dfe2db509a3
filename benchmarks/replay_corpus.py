"""The fixed corpus of `replay.py`, and the process that compiles it on one tree.

    python replay_corpus.py list                         the programs, as JSON
    python replay_corpus.py compile FOLDER < names       compile; one file per program in FOLDER

In:   `tests` and `benchmarks` of the newer commit, `weft` of either commit.
Out:  for each program its compiled functions, the canonical text of each stage, and the bits of
      its results.
Laws: only public names and the setting `dump` are used, so that a corpus runs on older commits.
"""

from __future__ import annotations

import contextlib
import doctest
import gzip
import hashlib
import importlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHAINS = 500
SAMPLE = 256  # elements of each result whose values are recorded
#: pages whose examples read the clock, start processes or print names of temporary files
PAGES = (
    "collectives.md",
    "explain.md",
    "explicit-sharding.md",
    "getting-started.md",
    "memory-layouts.md",
    "partitioning.md",
    "shard-map.md",
)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
#: cases whose first call takes minutes
SLOW = re.compile("48 layers")


@dataclass(frozen=True)
class CorpusProgram:
    """A program of the corpus: `run` compiles it and returns its results."""

    name: str
    group: str
    run: Callable[[], Any]
    devices: int = 8


def programs() -> list[CorpusProgram]:
    """Return the corpus; a group whose files are absent is empty."""
    return [*models(), *documents(), *chains(), *suite_cases()]


def models() -> Iterator[CorpusProgram]:
    """Yield the training models: one optimizer step each, at the small size."""
    try:
        from tests.models.registry import MODELS
    except ModuleNotFoundError:
        return
    for name, model in MODELS.items():
        yield CorpusProgram(name, "models", lambda model=model: _step(model))


def _step(model: Any) -> Any:
    import weft

    example = model.example("small", 0)
    return weft.jit(model.step)(*example)


def documents() -> Iterator[CorpusProgram]:
    """Yield the small programs of the documents, and the examples of the pages."""
    from tests.document import jaxpr_programs

    scope: dict = {}
    for line in jaxpr_programs.programs():
        yield CorpusProgram(line, "documents", lambda line=line: _run_line(line, scope))
    for page in PAGES:
        yield CorpusProgram(page, "documents", lambda page=page: _run_page(page))


def _run_line(line: str, scope: dict) -> Any:
    import weft
    from tests.document import jaxpr_programs

    if not scope:
        modules = (weft.numpy, weft.lax, weft.nn, weft.random, weft.sharding.PartitionSpec)
        scope.update(jaxpr_programs.scope_of(weft, *modules))
    function, _, arguments = line.rpartition("|")
    values = eval(f"({arguments.strip()},)" if arguments.strip() else "()", scope)
    return weft.jit(eval(function.strip(), scope))(*values)


def _run_page(page: str) -> None:
    """Run the examples of a page; texts that a commit prints otherwise do not matter."""
    path = HERE.parent / "docs" / page
    code = "".join(PYTHON_BLOCK.findall(path.read_text()))
    examples = doctest.DocTestParser().get_doctest(code, {}, page, str(path), 0)
    doctest.DocTestRunner(verbose=False).run(examples, out=lambda text: None)


def chains() -> Iterator[CorpusProgram]:
    """Yield random chains of public ops."""
    try:
        from tests.fuzz import chain_judge, chains as generator
    except ImportError:
        return
    for seed in range(CHAINS):
        run = lambda seed=seed: chain_judge.evaluate(generator.make(seed))
        yield CorpusProgram(f"chain {seed}", "chains", run)


def suite_cases() -> Iterator[CorpusProgram]:
    """Yield the cases of the benchmark suite."""
    import weft.compat

    weft.compat.install_as_jax()
    sys.path.insert(0, str(HERE))
    try:
        cases = importlib.import_module("suite").load()
    finally:
        sys.path.remove(str(HERE))
    for name, case in cases.items():
        if not SLOW.search(name):
            run = lambda case=case: _run_case(case)
            yield CorpusProgram(name, "suite", run, max(8, case.devices))


def _run_case(case: Any) -> Any:
    import weft

    if case.kind == "process":
        return exec(compile(case.script, case.name, "exec"), {"__name__": "__main__"})
    weft.config.update("jax_enable_x64", case.x64)
    return case.setup()()


# ---- compiling


def compile_program(program: CorpusProgram) -> dict[str, Any]:
    """Compile a program with dumps; return its functions' stages and the digest of its results."""
    import weft

    weft.clear_caches()
    values: list[list[float]] = []
    with tempfile.TemporaryDirectory() as folder:
        weft.config.update("dump", folder)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                results = weft.block_until_ready(program.run())
            arrays = arrays_of(results)
            bits, values = digest(arrays), [sample(array) for array in arrays]
        except Exception as error:
            bits = f"{type(error).__name__}: {error}".partition("\n")[0]
        finally:
            weft.config.update("dump", "")
            weft.config.update("jax_enable_x64", False)
            weft.set_mesh(None)
        return {"functions": read_dump(Path(folder)), "results": bits, "values": values}


def arrays_of(results: Any) -> list:
    """Return the arrays of a tree as NumPy arrays, keys as their data."""
    import numpy as np

    import weft

    found = []
    for leaf in weft.tree.leaves(results):
        dtype = getattr(leaf, "dtype", None)
        if dtype is not None and weft.dtypes.issubdtype(dtype, weft.dtypes.prng_key):
            leaf = weft.random.key_data(leaf)
        if hasattr(leaf, "shape") and dtype != weft.float0:
            found.append(np.asarray(leaf))
    return found


def digest(arrays: list) -> str:
    """Return a hash of the types and bits of arrays."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.dtype} {array.shape}".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()[:32]


def sample(array: Any) -> list[float]:
    """Return evenly spaced elements of an array as floats."""
    import numpy as np

    if not array.size:
        return []
    flat = array.reshape(-1)[:: -(-array.size // SAMPLE)]
    flat = np.abs(flat) if array.dtype.kind == "c" else flat
    return [float(x) for x in flat.astype(np.float64)]


def read_dump(folder: Path) -> list[list]:
    """Return the compiled functions in order: a name, and the canonical text of each stage.

    HLO before and after compilation are the last two stages.
    """
    from canonical_text import canonical_text

    functions = []
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        number, _, name = part.name.partition("_")
        files = sorted(part.iterdir())
        for time in ("before", "after"):
            files += folder.glob(f"module_{number}.*.{time}_optimizations.txt")
        stages = [[_stage_of(file), canonical_text(file.read_text())] for file in files]
        functions.append([name, stages])
    return functions


def _stage_of(file: Path) -> str:
    if file.name.startswith("module_"):
        return f"HLO {file.name.split('.')[-2].partition('_')[0]}"
    return file.stem.partition("_")[2]


def compile_all(folder: Path) -> None:
    """Compile the programs that standard input names; write and announce each one."""
    replies, silence = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)  # native code may print
    known = {program.name: program for program in programs()}
    for line in sys.stdin:
        name = json.loads(line)
        record = compile_program(known[name])
        file = folder / f"{file_name(name)}.json.gz"
        file.write_bytes(gzip.compress(json.dumps(record).encode(), 1))
        os.write(replies, b"\n")


def file_name(program: str) -> str:
    """Return a file name for a program."""
    return hashlib.sha256(program.encode()).hexdigest()[:24]


def main() -> None:
    if sys.argv[1] == "list":
        rows = [[p.name, p.group, p.devices] for p in programs()]
        print(json.dumps(rows))
    else:
        compile_all(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
