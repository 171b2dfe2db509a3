"""Symbolic sizes: expressions (`polynomials`), their bounds under constraints (`bounds`), and integers that use both (`sizes`)."""

from weft._engine.ir.symbolic.polynomials import (
    Polynomial as Polynomial,
    add as add,
    constant as constant,
    evaluate as evaluate,
    multiply as multiply,
    variable as variable,
    variables as variables,
)
from weft._engine.ir.symbolic.sizes import (
    InconsistentSizesError as InconsistentSizesError,
    SymbolicDim as SymbolicDim,
    SymbolicScope as SymbolicScope,
    UnsolvableSizesError as UnsolvableSizesError,
    as_int as as_int,
    as_size as as_size,
    has_names as has_names,
    is_at_most as is_at_most,
    is_more_than as is_more_than,
    is_multiple as is_multiple,
    is_symbolic_dim as is_symbolic_dim,
    is_variable as is_variable,
    max_dim as max_dim,
    min_dim as min_dim,
    names_in as names_in,
    note_nonnegative as note_nonnegative,
    slice_bounds as slice_bounds,
    solve as solve,
)
