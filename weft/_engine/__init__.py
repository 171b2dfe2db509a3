"""The private implementation of weft. Users import the public modules of the package `weft`.

Next: `api`, `pipeline`, `programs`; docs/tour.md describes the packages.
"""
