"""Native code: Loops kernels and Programs to machine code, through textual LLVM IR. Only this room imports llvmlite.

`program.compile_program` is the door; `target` knows the machine, `llvm` emits kernels, `math` the vector functions,
`entry` the schedule of a program, `cache` keeps objects on disk.
"""
