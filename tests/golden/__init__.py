"""Golden files: one module per compiler stage."""
