"""Planted faults: which of the checks that run in CI catch a fault in the compiler."""
