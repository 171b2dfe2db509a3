"""Programs as operations of XLA: what the texts of other compilers print.

In:   a Jaxpr, of the whole program or of one device.
Out:  `ops.Module`: functions of typed operations with regions. `stablehlo` prints it as MLIR.
Laws: nothing here runs unless a text is asked for. Every primitive has a rule, by its name or by its kind (`lowering`); what XLA has no
      operation for is written by what weft computes: its scalar code, its formula, or the operations that it is composed of.
Next: `stablehlo` and `hlo_text` for texts to read; `replica_program` for programs that PJRT plugins compile.
"""
