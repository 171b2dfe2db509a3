"""Operations of Loops on registers that hold one element or a vector of elements.

In:   a function of Loops and the names of its arguments' registers.
Out:  LLVM instructions that compute it, within the error bounds of docs/accuracy.md.
Laws: the same code is used for one lane and many; the C library is called only where polynomials do
      not suffice; rare arguments that need it are computed in a cold function.
Next: `vector_ops`, then `math` (calls of functions) and `math_real` (the notation of formulas).
"""
