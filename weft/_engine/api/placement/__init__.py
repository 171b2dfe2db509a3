"""Placement of arrays on devices: `device_put` moves trees of values, `assembly` creates arrays from parts."""
