"""`weft profile`: the command, the page of a profile, and the comparison of two profiles."""
