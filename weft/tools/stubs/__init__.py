"""Stubs for editors and type checkers: `python -m weft.tools.stubs` writes weft's stubs, `weft shim install` the stubs of `jax`.

Next to read: `public_modules` (the stubs of weft), `signatures` (a function as text), `jax_modules` (the stubs of `jax`). The folder
`declarations` has what is written by hand.
"""
