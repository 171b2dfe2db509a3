"""Compile a fixed corpus on two commits and compare every printed stage, the LLVM IR and results.

    python benchmarks/replay.py OLD NEW [--programs N] [--group GROUP ...] [--only TEXT]
    python benchmarks/replay.py --if-claimed [--programs N]

OLD and NEW are commits, or folders that hold the package (`.` is the working tree). The corpus
(the training models, the documents' programs, random chains, the benchmark suite) comes from NEW
and runs on both. Names are canonical (`canonical_text.py`); library routines, whose LLVM IR is
not dumped, are compared by the bits of results. The exit status is 1 if a program differs.

`--if-claimed` compares HEAD~1 with HEAD if HEAD's message says "no functional change".
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gzip
import json
import os
import re
import select
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay_corpus import file_name

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CLAIM = re.compile(r"no\s+functional\s+change", re.IGNORECASE)
CORPUS = ("benchmarks", "tests", "docs", "conftest.py")
DIGEST = re.compile("[0-9a-f]{32}")
PATIENCE_S = 600  # timeout of one program
EXCERPT = 24  # lines of a difference
SHOWN = 10  # differences that are printed


@dataclass(frozen=True)
class ProgramEntry:
    """A program of the corpus by name."""

    name: str
    group: str
    devices: int


@dataclass(frozen=True)
class Difference:
    """The first stage at which a program differs, and an excerpt."""

    program: ProgramEntry
    stage: str
    excerpt: str


# ---- trees


def extract(revision: str, paths: Sequence[str], folder: Path) -> Path:
    """Return a folder with these paths of a commit; a folder stands for itself."""
    if (Path(revision) / paths[0]).exists():
        return Path(revision).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    listing = ["git", "ls-tree", "--name-only", revision, *paths]
    present = subprocess.check_output(listing, cwd=ROOT, text=True).split()
    command = ["git", "archive", "--format=tar", revision, *present]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            archive.extractall(folder, filter="data")
    if process.returncode:
        raise SystemExit(f"git archive {revision} failed")
    return folder


def environment(tree: Path, corpus: Path, devices: int = 8) -> dict[str, str]:
    """Return the environment of a process that compiles the corpus on a tree."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "JAX_", "XLA_"))}
    kept |= {k: os.environ[k] for k in ("WEFT_CPU_FEATURES",) if k in os.environ}
    settings = {
        "WEFT_NUM_DEVICES": str(devices),
        "WEFT_NUM_THREADS": "2",
        "WEFT_CACHE_DIR": "off",
        "PYTHONPATH": os.pathsep.join(map(str, (tree, corpus, corpus / "benchmarks"))),
        "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "ignore",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONSAFEPATH": "1",
    }
    return kept | settings


def list_corpus(tree: Path, corpus: Path) -> list[ProgramEntry]:
    """Return all programs of the corpus."""
    command = [sys.executable, str(corpus / "benchmarks" / "replay_corpus.py"), "list"]
    variables = environment(tree, corpus)
    text = subprocess.check_output(command, env=variables, cwd=corpus, text=True)
    return [ProgramEntry(*row) for row in json.loads(text)]


def choose(entries: list[ProgramEntry], count: int, first: int = 0) -> list[ProgramEntry]:
    """Return about `count` programs, evenly from each group in its order, from number `first`."""
    groups = sorted({entry.group for entry in entries})
    chosen: list[ProgramEntry] = []
    for k, group in enumerate(groups):
        members = [entry for entry in entries if entry.group == group and entry.devices == 8]
        number = min(len(members), count * (k + 1) // len(groups) - count * k // len(groups))
        start = first % max(1, len(members))
        members = members[start:] + members[:start]
        chosen += [members[i * len(members) // number] for i in range(number)]
    return chosen


# ---- compiling


class CorpusWorker:
    """A process that compiles programs of the corpus on one tree, restarted when it dies."""

    def __init__(self, tree: Path, corpus: Path, folder: Path, devices: int) -> None:
        script = corpus / "benchmarks" / "replay_corpus.py"
        self.command = [sys.executable, str(script), "compile", str(folder)]
        self.variables = environment(tree, corpus, devices)
        self.folder = folder
        self.corpus = corpus
        self.process: subprocess.Popen | None = None

    def compile(self, name: str) -> None:
        """Compile one program; a death or a timeout is its result."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.corpus,
                env=self.variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(name).encode() + b"\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
            if ready and self.process.stdout.read(1):
                return
        except BrokenPipeError:
            ready = True
        if not ready:
            self.process.kill()
        code = self.process.wait()
        self._forget()
        record = {"functions": [], "results": f"died: exit {code}" if ready else "timed out"}
        write_record(self.folder, name, record)

    def close(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self._forget()

    def _forget(self) -> None:
        """Close the pipes of a process that has ended."""
        assert self.process is not None and self.process.stdin and self.process.stdout
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process = None


def write_record(folder: Path, name: str, record: dict[str, Any]) -> None:
    data = gzip.compress(json.dumps(record).encode(), 1)
    (folder / f"{file_name(name)}.json.gz").write_bytes(data)


def read_record(folder: Path, name: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((folder / f"{file_name(name)}.json.gz").read_bytes()))


def compile_corpus(
    tree: Path,
    corpus: Path,
    entries: Sequence[ProgramEntry],
    folder: Path,
    after_each: Callable[[ProgramEntry], bool] = lambda entry: True,
) -> None:
    """Compile programs on a tree, one record each in `folder`, while `after_each` returns True."""
    folder.mkdir(parents=True, exist_ok=True)
    for devices in sorted({entry.devices for entry in entries}):
        worker = CorpusWorker(tree, corpus, folder, devices)
        try:
            for entry in entries:
                if entry.devices == devices:
                    worker.compile(entry.name)
                    if not after_each(entry):
                        return
        finally:
            worker.close()


# ---- comparing


def compare(entry: ProgramEntry, old: Path, new: Path) -> Difference | None:
    """Return the first difference between two records of a program."""
    a, b = read_record(old, entry.name), read_record(new, entry.name)
    for k, ((name, stages), (other, others)) in enumerate(zip(a["functions"], b["functions"])):
        if name != other:
            excerpt = f"function {k} is {name}, then {other}"
            return Difference(entry, "functions", excerpt)
        for (stage, text), (other_stage, other_text) in zip(stages, others):
            if stage != other_stage:
                return Difference(entry, f"{name}: {stage}", f"now the stage {other_stage}")
            if text != other_text:
                return Difference(entry, f"{name}: {stage}", excerpt_of(text, other_text))
        if len(stages) != len(others):
            counts = f"{len(stages)} stages, now {len(others)}"
            return Difference(entry, name, counts)
    if len(a["functions"]) != len(b["functions"]):
        names = [[name for name, _ in x["functions"]] for x in (a, b)]
        return Difference(entry, "functions", excerpt_of(*["\n".join(n) for n in names]))
    if a["results"] != b["results"]:
        excerpt = f"- {a['results']}\n+ {b['results']}"
        return Difference(entry, "results", excerpt)
    return None


def excerpt_of(old: str, new: str) -> str:
    """Return the first lines of a unified diff."""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "old", "new", "", "", 2))
    more = len(lines) - EXCERPT
    shown = [line[:160] for line in lines[:EXCERPT]]
    return "\n".join(shown + [f"... {more} more lines"] * (more > 0))


def replay(old: str, new: str, options: argparse.Namespace, first: int = 0) -> int:
    """Compare two commits, print the result; return the number of programs that differ."""
    with tempfile.TemporaryDirectory(prefix="replay-") as scratch:
        folder = Path(scratch)
        trees = [extract(r, ["weft"], folder / name) for r, name in ((old, "old"), (new, "new"))]
        corpus = extract(new, CORPUS, folder / "corpus")
        corpora = [corpus, corpus]
        if options.own_corpus:
            corpora[0] = extract(old, CORPUS, folder / "old-corpus")
        entries = list_corpus(trees[1], corpus)
        if options.group:
            entries = [entry for entry in entries if entry.group in options.group]
        if options.only:
            entries = [entry for entry in entries if options.only in entry.name]
        if options.programs:
            entries = choose(entries, options.programs, first)
        records = [folder / "old-records", folder / "new-records"]
        workers = [
            threading.Thread(target=compile_corpus, args=(tree, corpus, entries, record))
            for tree, corpus, record in zip(trees, corpora, records)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = [compare(entry, *records) for entry in entries]
        failed = [entry for entry in entries if is_failure(records[1], entry)]
        print_report(entries, [d for d in found if d is not None], failed)
        return sum(d is not None for d in found)


def is_failure(folder: Path, entry: ProgramEntry) -> bool:
    """Return whether a program raised, died or took too long."""
    return not DIGEST.fullmatch(read_record(folder, entry.name)["results"])


def print_report(
    entries: Sequence[ProgramEntry],
    differences: Sequence[Difference],
    failed: Sequence[ProgramEntry],
) -> None:
    """Print a row for each group, and the first differences; `failed` raise or die on NEW."""
    totals, failures = (Counter(e.group for e in some) for some in (entries, failed))
    differing = Counter(d.program.group for d in differences)
    print(f"{'group':12}{'equal':>8}{'differs':>9}{'failed':>8}")
    for group, total in totals.items():
        differs = differing[group]
        print(f"{group:12}{total - differs:8}{differs:9}{failures[group]:8}")
    for entry in failed[:SHOWN]:
        print(f"failed on NEW: {entry.group}: {entry.name}")
    for d in differences[:SHOWN]:
        print(f"\n{d.program.group}: {d.program.name}\n  first difference: {d.stage}\n{d.excerpt}")
    if len(differences) > SHOWN:
        rest = [f"  {d.program.group}: {d.program.name} ({d.stage})" for d in differences[SHOWN:]]
        print("\nand\n" + "\n".join(rest))


# ---- the claim of a commit message


def git(*arguments: str) -> str | None:
    """Return the output of a git command; None if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def claimed_commits() -> tuple[str, str] | None:
    """Return HEAD~1 and HEAD if HEAD's message claims no functional change; else say why not."""
    message = git("log", "-1", "--format=%B", "HEAD")
    if message is None:
        print("replay: no Git history here")
    elif not CLAIM.search(message):
        print('replay: the message of HEAD does not say "no functional change"')
    elif (old := git("rev-parse", "--verify", "--quiet", "HEAD~1")) is None:
        print("replay: HEAD~1 is not in this clone; fetch it to compare")
    else:
        return old, str(git("rev-parse", "HEAD"))
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare what two commits compile.")
    parser.add_argument("commits", nargs="*", metavar="OLD NEW")
    parser.add_argument("--if-claimed", action="store_true", help="HEAD~1 and HEAD, if claimed")
    parser.add_argument(
        "--programs", type=int, help="the approximate number of programs, drawn from all groups"
    )
    parser.add_argument("--group", action="append", help="models, documents, chains or suite")
    parser.add_argument(
        "--own-corpus", action="store_true", help="OLD's own corpus, where modules were renamed"
    )
    parser.add_argument("--only", help="programs whose name contains this text")
    options = parser.parse_args()
    if options.if_claimed:
        commits = claimed_commits()
        if commits is None:
            return 0
        return min(1, replay(*commits, options, first=int(commits[1][:7], 16)))
    if len(options.commits) != 2:
        parser.error("name two commits")
    return min(1, replay(*options.commits, options))


if __name__ == "__main__":
    raise SystemExit(main())
