"""The state shared with other processes: a list with the one `state.Processes`, empty in a single process."""

held: list = []
