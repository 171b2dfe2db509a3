"""Public names whose form may still change; each lives in a module of its own."""
