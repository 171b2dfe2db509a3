"""Texts for people: the arguments of a call in an error, and lines of progress."""
