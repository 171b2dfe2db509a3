"""Programs and hand-written layouts that automatic sharding is compared with. Run `python -m benchmarks.automatic`."""
