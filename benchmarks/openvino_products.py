"""Matrix products on OpenVINO, with the requests of `worker.py`: one of the peers of `matrix_units.py`."""

from __future__ import annotations

import os
import time

import ml_dtypes
import numpy as np
import openvino as ov
from openvino import opset13 as ops

#: the processor's capability that each type needs, and the type's bits in NumPy
_TYPES = {
    "bf16": ("BF16", ov.Type.bf16, np.uint16),
    "f32": ("FP32", ov.Type.f32, np.float32),
}


class Products:
    """Answers `setup` with the time of a product's first call, `round` with times per call."""

    def __init__(self) -> None:
        self.core = ov.Core()
        self.request: ov.InferRequest | None = None

    def ready(self) -> dict:
        return {"version": ov.__version__.split("-")[0]}

    def setup(self, case: str, product: tuple[int, int, int, str]) -> dict:
        """Compile a product of random matrices; the result has the type of the operands."""
        m, k, n, type = product
        capabilities = self.core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        needed, kind, bits = _TYPES[type]
        if needed not in capabilities:
            raise NotImplementedError(f"{case}: {type} on this processor")
        operands = [ops.parameter(shape, kind) for shape in ([m, k], [k, n])]
        model = ov.Model([ops.matmul(*operands, False, False)], operands)
        options = {"INFERENCE_PRECISION_HINT": type, "PERFORMANCE_HINT": "LATENCY"}
        options["INFERENCE_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
        start = time.perf_counter()
        self.request = self.core.compile_model(model, "CPU", options).create_infer_request()
        random = np.random.default_rng(2)
        for i, shape in enumerate(((m, k), (k, n))):
            values = random.standard_normal(shape, np.float32)
            tensor = ov.Tensor(kind, ov.Shape(shape))
            narrow = values.astype(ml_dtypes.bfloat16) if type == "bf16" else values
            tensor.data.view(bits)[...] = narrow.view(bits)
            self.request.set_input_tensor(i, tensor)
        self.request.infer()
        return {"first": time.perf_counter() - start}

    def round(self, seconds: float) -> dict:
        assert self.request is not None
        times, end = [], time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            self.request.infer()
            times.append(time.perf_counter() - start)
        return {"times": times}
