"""The training models by name: 25, the convolutional network in two layouts."""

from tests.models import generative, scientific, sequences, vision
from tests.models.layers import Model

MODELS: dict[str, Model] = {
    model.name: model
    for module in (vision, sequences, generative, scientific)
    for model in module.MODELS
}
