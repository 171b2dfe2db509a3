"""`weft profile PROGRAM`: run a program, then print the steps of its compiled functions with their times.

In:  the options of the command line.
Out: the program's own output and exit status, then the table, the files, and the comparison with another profile.
"""

from __future__ import annotations

import argparse
import sys

from weft.profiler.comparison import compare
from weft.profiler.profile import Profile
from weft.profiler.recording import record
from weft.tools.profile.page import profile_page
from weft.tools.run import run_program


def profile_program(options: argparse.Namespace) -> int:
    """Run `options.program` as `run_program` does and print its profile; return its exit status."""
    earlier = None
    if options.compare is not None:
        try:
            earlier = Profile.load(options.compare)
        except (OSError, ValueError) as error:
            print(f"weft profile: --compare: {error}", file=sys.stderr)
            return 2
    profile: Profile | None = None
    try:
        with record() as profile:
            return run_program(
                options.program,
                options.arguments,
                as_module=options.as_module,
                devices=options.devices,
            )
    finally:
        if profile is not None:
            _report(profile, earlier, options)


def _report(profile: Profile, earlier: Profile | None, options: argparse.Namespace) -> None:
    print(f"\n{profile}")
    if earlier is not None:
        print(f"\n{compare(earlier, profile)}")
    if options.save is not None:
        profile.save(options.save)
        print(f"\nThe profile is saved in {options.save}.")
    if options.html is not None:
        with open(options.html, "w", encoding="utf-8") as file:
            file.write(profile_page(profile, earlier))
        print(f"\nThe page with the timeline is {options.html}.")
