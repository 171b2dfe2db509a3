"""Translation of programs to StableHLO and HLO operations, for text output and PJRT plugins.

In:   a jaxpr of the whole program or of one device.
Out:  an `ops.Module`: functions of typed operations with regions. `stablehlo` prints it as MLIR.
Laws: nothing here runs until a text or a plugin program is requested. Every primitive has a rule,
      registered by name or by kind (`lowering`). A primitive without an XLA operation is written as
      its scalar code, its formula, or the operations of its composite definition.
Next: `stablehlo` and `hlo_text` print readable texts; `replica_program` writes the programs that
      PJRT plugins compile.
"""
