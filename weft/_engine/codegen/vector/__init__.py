"""Operations of Loops on registers, one element or a vector of them.

In:   a function of Loops and the names of its arguments' registers.
Out:  LLVM instructions that compute it, within the error bounds of docs/accuracy.md.
Laws: the same code is used for one lane and many; no C library function is called where a polynomial will do; rare arguments that
      need one go to a cold function.
Next: `vector_ops`, then `math` (where each function is) and `math_real` (how formulas are written).
"""
