"""Lowering: from a fused group to scalar code.

In:   a `fusion.groups.Group`.
Out:  `lower.Lowered`: an expression per output as a function of its position, built by the ops' `lower` rules.
Laws: no loop is chosen here. Expressions are shared, and `let_placement` turns them into statements once the loops are known.
Next: `lower`; `substitution` rewrites expressions; `let_placement` turns them into statements.
"""
