"""What people run and read: the command line, and reports on programs."""
