"""What programs run on: devices, arrays and executables.

In:   backends (`weft._engine.backends`), which have the devices, hold the values and load the programs.
Out:  `Array` and `Executable`; functions that ask for devices, meshes of them, and live arrays.
Laws: nothing here reads a buffer: its backend does. An array finds its backend in its spec.
Next: `array`, `executable`, `device`; `topology` makes meshes, `live` lists what is alive.
"""
