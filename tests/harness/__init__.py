"""Helpers shared by tests of several folders: cases of ops, and the laws that every op satisfies."""
