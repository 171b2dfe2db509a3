"""One call of a compiled function: its options, its two levels of caches, and programs on arrays.

Next: `docs/how-a-call-works.md` describes a call; `options` are jit's parameters, `call_cache` stores traces and executables,
      `with_refs` handles mutable arrays, `evaluator` runs single operations.
"""
