"""Random keys become arrays of their uint32 words."""

import weft
from tests.harness.golden import program


@program(weft.random.key(0))
def split_key(key):
    # CHECK: { lambda ; a:u32[2]. let
    # CHECK-NOT: key<fry>
    # CHECK: threefry
    return weft.random.split(key)
