"""`weft plan`, run as people run it."""

import json
import textwrap

import pytest

from tests.harness.pages import needs_pages, page
from tests.harness.processes import run_weft
from weft.tools.plan_command import PlanOptions, print_plans


def test_the_five_best_plans(tmp_path):
    run = run_weft("plan", "--model", "llama3-70b", "--cluster", "h100:64", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    rows = [line.split() for line in run.stdout.splitlines()]
    assert [row[0] for row in rows[2:7]] == ["1", "2", "3", "4", "5"]
    for heading in ("mesh", "memory", "step", "MFU", "bottleneck"):
        assert heading in rows[0]
    text = run.stdout
    assert "llama3-70b, 70.6 billion parameters" in text and "8 nodes of 8 x h100" in text
    assert "stage 0 F" in text or "all devices F" in text
    assert "layouts considered" in text and "does not leave a node" in text


@needs_pages
def test_the_page_shows_the_output(capsys):
    _, out, _ = output(capsys, model="llama3-70b", cluster="h100:64")
    assert out.strip() in page("planning.md").read_text()


def output(capsys, **options):
    status = print_plans(PlanOptions(**options))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_config_and_a_function_of_a_file(capsys, tmp_path):
    config = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8, "name": "mine"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    status, out, _ = output(
        capsys, model=str(tmp_path / "config.json"), cluster="a100:8", batch=64, seq=512
    )
    assert status == 0 and "mine, 199.8 million parameters, 512 tokens a sequence" in out
    (tmp_path / "train.py").write_text(
        textwrap.dedent(
            """
            import weft, weft.numpy as wnp

            def training():
                struct = weft.ShapeDtypeStruct
                w = {n: struct((64, 64), "float32") for n in "qkvo"}
                w |= {"u": struct((64, 256), "float32"), "d": struct((256, 64), "float32")}
                w |= {"e": struct((100, 64), "float32"), "h": struct((64, 100), "float32")}
                return loss, w, struct((2, 16), "int32")

            def loss(w, tokens):
                x = w["e"][tokens]
                q, k, v = ((x @ w[n]).reshape(2, 16, 4, 16) for n in "qkv")
                x = x + weft.nn.dot_product_attention(q, k, v).reshape(2, 16, 64) @ w["o"]
                x = x + weft.nn.gelu(x @ w["u"]) @ w["d"]
                return (x @ w["h"]).mean()
            """
        )
    )
    status, out, err = output(
        capsys, model=f"{tmp_path / 'train.py'}:training", cluster="h100:2", batch=64
    )
    assert status == 0 and "loss, 0.1 million parameters, 16 tokens a sequence" in out, err


@pytest.mark.parametrize(
    "options, message",
    [
        ({"model": "llama9"}, "weft plan: unknown model 'llama9'. Similar names: llama"),
        ({"model": "nothing.py:f"}, "weft plan: 'nothing.py' is not a file."),
        ({"cluster": "h100:many"}, "'h100:many' does not say how many devices"),
        ({"memory": 1.0}, "The smallest possible peak is "),
        ({"batch": 3, "cluster": "h100:5", "seq": 64, "model": "gpt3-125m"}, "the batch is 3"),
    ],
    ids=["model", "file", "cluster", "memory", "batch"],
)
def test_requests_without_a_plan_are_explained(capsys, options, message):
    status, out, err = output(capsys, **{"model": "llama3-8b", "cluster": "h100:64", **options})
    assert status == 2 and out == "" and message in err


def test_a_file_without_the_function(capsys, tmp_path):
    (tmp_path / "train.py").write_text("f = lambda: 3\n")
    for name, message in (
        ("g", "has no function 'g'"),
        ("f", "returned int. It must return a loss"),
    ):
        status, _, err = output(capsys, model=f"{tmp_path / 'train.py'}:{name}", cluster="h100:8")
        assert status == 2 and message in err
