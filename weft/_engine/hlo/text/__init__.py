"""Modules as texts and bytes: StableHLO, HLO, and HLO's protocol buffers."""
