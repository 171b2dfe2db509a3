"""The version of weft, alone so that packaging can read it without importing anything."""

__version__ = "0.1.0"
