"""Arrays on devices: `device_put` moves trees of values, `assembly` makes arrays of parts."""
