"""The programs here are read by type checkers; `test_programs.py` runs the correct ones."""

collect_ignore = ["correct", "wrong"]
