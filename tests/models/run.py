"""Check the training models from the command line.

    python -m tests.models.run                      # all models, small
    python -m tests.models.run --size large vit gru

Each line has the model, the CPU seconds, and what differs. The exit status is 1 if anything does.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ.setdefault("WEFT_NUM_DEVICES", "8")

from tests.models import compare
from tests.models.registry import MODELS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names of models; all by default")
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument("--seed", type=int, default=0, help="of parameters and batches")
    options = parser.parse_args()
    failed = 0
    for name in options.models or MODELS:
        model, start = MODELS[name], time.process_time()
        checks = [compare.check_model, compare.check_vmap]
        checks += [compare.check_mesh] if model.is_batched else []
        texts = []
        for check in checks:
            try:
                texts += check(model, options.size, options.seed)
            except Exception as error:
                texts.append(f"{check.__name__}: {type(error).__name__}: {error}")
        failed += bool(texts)
        print(
            f"{name:20} {time.process_time() - start:7.1f} s  {'; '.join(texts) or 'ok'}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
