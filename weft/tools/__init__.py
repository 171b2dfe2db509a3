"""The command line, and reports on programs."""
