#!/usr/bin/env bash
# A quick look at the health of a checkout: import weft and run a small, fast part of the tests.
# Uses $WEFT_PYTHON, else `python`, else .venv/bin/python: the first one that has what the tests need.
set -u
cd "$(dirname "$0")/.." || exit 1

usable() { "$1" -c 'import numpy, llvmlite, ml_dtypes, hypothesis, pytest' >/dev/null 2>&1; }

for candidate in "${WEFT_PYTHON:-python}" .venv/bin/python; do
  if usable "$candidate"; then
    python=$candidate
    break
  fi
done
if [ -z "${python:-}" ]; then
  echo "smoke: skipped, no Python with the test dependencies here (set WEFT_PYTHON or run 'make setup')"
  exit 0
fi

"$python" -c 'import weft; print("weft", weft.__version__)' || exit 1
"$python" -m pytest -q -x -m "not slow" -p no:cacheprovider tests/util
status=$?
[ "$status" -eq 5 ] && exit 0 # nothing to collect there is not a failure of this look
exit "$status"
