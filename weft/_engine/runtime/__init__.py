"""Devices, arrays and executables.

In:   backends (`weft._engine.backends`), which provide devices, store values and load programs.
Out:  `Array` and `Executable`; functions that return devices, meshes and live arrays.
Laws: only the backend of a buffer reads it. An array finds its backend in its array spec.
Next: `array`, `executable`, `device`; `topology` makes meshes, `live_arrays` lists live arrays.
"""
