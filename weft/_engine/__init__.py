"""The engine of weft, which is private: users import the modules above.

Next: `api`, `pipeline`, `programs`; docs/tour.md is a map.
"""
