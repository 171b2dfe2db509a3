"""Programs that together use every operation, for texts that other compilers read."""

from tests.hlo import array_programs, device_programs, elementwise_programs, nested_programs
from tests.hlo.program_list import PROGRAMS as REGISTERED, Program

MODULES = (elementwise_programs, array_programs, nested_programs, device_programs)
PROGRAMS: list[Program] = [
    program
    for module in MODULES
    for program in REGISTERED
    if program.fn.__module__ == module.__name__
]
