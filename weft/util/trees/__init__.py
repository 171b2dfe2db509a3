"""What `util.tree` is made of: structures and the registry of types (`treedef`), functions written for one structure (`code`), and keys of
paths (`keypath`). Values come in, leaves and structures go out. Next: `treedef`."""
