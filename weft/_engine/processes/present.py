"""What this process shares with others, if it does: the one `state.Processes`, in a list."""

held: list = []
