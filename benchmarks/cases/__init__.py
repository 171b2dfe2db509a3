"""The cases by subject; `suite.load` imports every file of this folder."""
