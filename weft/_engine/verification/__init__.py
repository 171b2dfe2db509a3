"""Verification of compiled programs: the checks that the setting `check` selects, except for types.

Modules are imported by the code that needs them. A process without checks imports none.
"""
