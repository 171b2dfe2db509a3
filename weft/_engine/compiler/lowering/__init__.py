"""Lowering of fused groups to scalar code.

In:   a `fusion.groups.KernelGroup`.
Out:  `lower.LoweredGroup`: an expression per output as a function of its position, built by the ops' `lower` rules.
Laws: lowering does not choose loops. Expressions are shared, and `let_placement` turns them into statements once the loops are known.
Next: `lower`; `substitution` rewrites expressions; `let_placement` turns them into statements.
"""
