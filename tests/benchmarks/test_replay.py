"""The replay of a corpus on two commits: canonical names, differences, the claim of a message."""

import shutil
import subprocess

import pytest

SCRIPT = "replay"


@pytest.fixture(scope="module")
def replay(script):
    return script


@pytest.fixture
def canonical(replay):
    from canonical_text import canonical_text

    return canonical_text


IR = """; kernel {name}
declare <4 x float> @llvm.fabs.v4f32(<4 x float>)
define void @weft_k_{hash}(ptr %ctx) #0 {{
entry:
  %v{one} = load <4 x float>, ptr %ctx, align 4, !alias.scope !{n}, !noalias !12
  br label %loop{one}
loop{one}:
  %i = phi i64 [0, %entry], [%v{two}, %loop{one}]
  %v{two} = {op} nuw i64 %i, 1
  br label %loop{one}
}}
attributes #0 = {{ nounwind }}
!0 = !{{!0}}
!12 = !{{!13}}
!13 = distinct !{{!13, !0}}
!{n} = !{{!13}}
"""


def module(name="f", fill="a", one=1, two=2, n=14, op="add"):
    return IR.format(name=name, hash=fill * 32, one=one, two=two, n=n, op=op)


def test_names_are_canonical(canonical):
    text = canonical(module())
    assert text == canonical(module(fill="b", one=31, two=7, n=99))
    assert "%n2 = load <4 x float>, ptr %n0" in text and "declare" in text and "aaaa" not in text
    assert canonical(text) == text


@pytest.mark.parametrize("change", [{"op": "sub"}, {"name": "g"}], ids=["op", "kernel"])
def test_other_code_is_other_text(canonical, change):
    assert canonical(module()) != canonical(module(**change))


def test_swapped_values_are_other_text(canonical):
    text = module()
    assert canonical(text.replace("[0, %entry], [%v2,", "[0, %entry], [%v1,")) != canonical(text)


def test_metadata_of_another_buffer_is_other_text(canonical):
    text = module()
    assert canonical(text.replace("!noalias !12", "!noalias !0")) != canonical(text)


def test_source_lines_and_addresses_are_dropped(canonical):
    hlo = '%add = add(%a, %b), metadata={op_name="f" source_file="/a/b.py" source_line=3}'
    moved = hlo.replace("/a/b.py", "/c/d.py").replace("=3", "=4")
    assert canonical(hlo) == canonical(moved)
    first, second = (f"c[f=<function g at 0x7f{k * 10}>]" for k in ("1", "2"))
    assert canonical(first) == canonical(second)


def record(stages, results="0" * 32):
    return {"functions": [["jit_f_", stages]], "results": results}


@pytest.mark.parametrize(
    "new, stage",
    [
        (record([["simplify", "a"], ["schedule", "b"]]), None),
        (record([["simplify", "a"], ["schedule", "c"]]), "jit_f_: schedule"),
        (record([["simplify", "a"]]), "jit_f_"),
        (record([["simplify", "a"], ["schedule", "b"]], "1" * 32), "results"),
        ({"functions": [], "results": "0" * 32}, "functions"),
    ],
    ids=["equal", "text", "fewer stages", "results", "fewer functions"],
)
def test_first_difference(replay, tmp_path, new, stage):
    entry = replay.ProgramEntry("f", "chains", 8)
    for name, entries in (("old", record([["simplify", "a"], ["schedule", "b"]])), ("new", new)):
        (tmp_path / name).mkdir()
        replay.write_record(tmp_path / name, "f", entries)
    difference = replay.compare(entry, tmp_path / "old", tmp_path / "new")
    assert (difference and difference.stage) == stage


def test_a_subset_takes_from_every_group(replay):
    groups = {"chains": 500, "documents": 280, "models": 25, "suite": 600}
    entries = [replay.ProgramEntry(f"{g} {i}", g, 8) for g, n in groups.items() for i in range(n)]
    chosen = replay.choose(entries, 50)
    assert len(chosen) == len({e.name for e in chosen}) == 50
    assert {e.group for e in chosen} == set(groups)
    assert replay.choose(entries, 50, first=7) != chosen


@pytest.mark.parametrize(
    "message, parents, claimed",
    [
        ("Move a file\n\nNo functional\nchange.", 1, True),
        ("Move a file", 1, False),
        ("no functional change", 0, False),
    ],
    ids=["claimed", "not claimed", "no parent"],
)
def test_claims_are_read_from_the_message(replay, tmp_path, monkeypatch, message, parents, claimed):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    for text in [*["first"] * parents, message]:
        commit = [*git, "commit", "-q", "--allow-empty", "-m", text]
        subprocess.run(commit, cwd=tmp_path, check=True)
    monkeypatch.setattr(replay, "ROOT", tmp_path)
    assert (replay.claimed_commits() is not None) is claimed


def test_a_changed_kernel_is_a_difference(replay, tmp_path):
    """Compile one program on this tree and on a copy without simplification."""
    package = replay.ROOT / "weft"
    shutil.copytree(package, tmp_path / "weft", ignore=shutil.ignore_patterns("__pycache__"))
    simplify = tmp_path / "weft/_engine/compiler/rewrite" / "simplify.py"
    simplify.write_text(simplify.read_text() + "\nsimplify = lambda program, *_: program\n")
    entry = replay.ProgramEntry("lambda x, y: jnp.sum(jnp.sin(x * y)) | v, v", "documents", 8)
    for name, tree in (("same", replay.ROOT), ("old", replay.ROOT), ("new", tmp_path)):
        replay.compile_corpus(tree, replay.ROOT, [entry], tmp_path / name)
    assert not replay.is_failure(tmp_path / "old", entry)
    assert replay.compare(entry, tmp_path / "old", tmp_path / "same") is None
    assert replay.compare(entry, tmp_path / "old", tmp_path / "new") is not None
