"""Operations of Loops on registers, one element or a vector of them.

In:   a function of Loops and the names of its arguments' registers.
Out:  LLVM instructions that compute it, exact to the bounds of docs/accuracy.md.
Laws: the same code serves one lane and many; no call of a C library function where a polynomial will do; what needs one goes
      to a cold function.
Next: `vector_ops`, then `math` (which function is where) and `math_real` (how formulas are written).
"""
