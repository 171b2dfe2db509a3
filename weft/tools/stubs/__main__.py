"""`python -m weft.tools.stubs`: write the stubs of weft."""

from weft.tools.stubs.public_modules import stubs

for path, text in stubs().items():
    path.write_text(text)
