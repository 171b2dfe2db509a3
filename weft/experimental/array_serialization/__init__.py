"""Saving arrays of many devices: what checkpoint libraries build on."""
