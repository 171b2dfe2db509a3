"""Op families: each operation with all that it means, closed under transposition. Start reading at `families`."""
