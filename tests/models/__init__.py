"""Small training models, written as users write them, and the checks of their compiled programs."""
