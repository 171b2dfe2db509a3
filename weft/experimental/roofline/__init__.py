"""Roofline analysis: the cost of a program on an accelerator model, computed from its trace.

In:   a function and the types of its arguments.
Out:  a `RooflineResult`: operations, bytes of memory, and bytes and hops on the links of each mesh axis. Nothing is compiled or run.
Next: `rooflines`, the table of costs; `cost_analysis()` of a compiled program counts what the compiler made of it.
"""

from weft.experimental.roofline.records import (
    RooflineResult as RooflineResult,
    RooflineRuleContext as RooflineRuleContext,
    RooflineShape as RooflineShape,
)
from weft.experimental.roofline.roofline import (
    roofline as roofline,
    roofline_and_grad as roofline_and_grad,
)
from weft.experimental.roofline.rooflines import (
    register_roofline as register_roofline,
    register_standard_roofline as register_standard_roofline,
)
