"""Serialization of sharded arrays, for checkpoint libraries."""
