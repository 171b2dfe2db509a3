"""Reports on compiled programs, from real ones on eight devices."""

import inspect

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P
from weft.tools.report import as_text, collectives


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(weft.devices()[:8]).reshape(4, 2), ("data", "model"))


def placed(mesh, shape, spec):
    return weft.device_put(np.ones(shape, np.float32), NamedSharding(mesh, spec))


def row_times_column(x, w):
    return x @ w


def test_a_product_over_a_split_dim_is_one_sum_with_its_line(mesh):
    x, w = placed(mesh, (8, 16), P("data", "model")), placed(mesh, (16, 32), P("model", None))
    (record,) = collectives(weft.jit(row_times_column).lower(x, w).compile())
    assert record.axes == ("model",) and record.count == 1
    assert record.bytes > 0
    line = inspect.getsourcelines(row_times_column)[1] + 1
    assert f"test_report.py:{line}" in record.source and "return x @ w" in record.source
    assert record.reason


def test_no_communication_is_an_empty_report(mesh):
    x, w = placed(mesh, (8, 16), P("data", None)), placed(mesh, (16, 32), P(None, "model"))
    records = collectives(weft.jit(row_times_column).lower(x, w).compile())
    assert records == []
    assert as_text(records) == "0 collectives, 0 B sent by each device"


def test_explain_tells_it_all(mesh):
    x, w = placed(mesh, (8, 16), P("data", "model")), placed(mesh, (16, 32), P("model", None))
    told = weft.explain(lambda x, w: wnp.tanh(row_times_column(x, w)), x, w)
    assert [r.axes for r in told.collectives] == [("model",)]
    assert (told.kernel_count, told.matmul_count) == (
        0,
        1,
    ) and told.peak_bytes >= x.nbytes + w.nbytes
    assert "1 collective" in str(told) and "test_report.py" in str(told)
    assert "test_report.py" in told._repr_html_()
