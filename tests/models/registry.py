"""All training models by name.

`MODELS[name].example(size, seed)` gives the arguments of `MODELS[name].step`. The models use public
names of weft only, so that they run on other commits.
"""

from __future__ import annotations

from tests.models import adapted, attention, generative, scientific, sequences, vision
from tests.models.record import Model

_modules = (vision, sequences, attention, generative, scientific, adapted)
MODELS: dict[str, Model] = {model.name: model for module in _modules for model in module.MODELS}
