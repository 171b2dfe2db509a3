"""The implementation of `util.tree`: structures and the registry of node types (`treedef`), functions generated for one structure
(`code`), keys of paths (`keypath`), and serialized structures (`plain`). Next: `treedef`."""
