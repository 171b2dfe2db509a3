"""One call of a compiled function: its options, its two levels of caches, and programs on arrays.

Next: `docs/how-a-call-works.md` shows the way of a call; `options` are jit's parameters, `call_cache` remembers traces and calls,
      `with_refs` passes mutable arrays through, `evaluator` runs single operations.
"""
