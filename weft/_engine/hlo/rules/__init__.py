"""The rules by which equations become operations of XLA, by family."""
