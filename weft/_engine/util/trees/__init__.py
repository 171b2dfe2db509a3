"""What `util.tree` is made of: structures and the registry of types (`treedef`), functions written for one structure (`code`), keys of
paths (`keypath`), and structures as lists and bytes (`plain`). Values come in, leaves and structures go out. Next: `treedef`."""
