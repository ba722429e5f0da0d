"""Adam in its dense and selective forms, learning-rate schedules, batch scaling."""

from grendel_odin.optim.adam import Adam, PackedGradients
from grendel_odin.optim.schedule import Rates, log_linear
from grendel_odin.optim.settings import LrScaleMode, OptimizerKind, OptimSettings

__all__ = [
    "Adam",
    "LrScaleMode",
    "OptimSettings",
    "OptimizerKind",
    "PackedGradients",
    "Rates",
    "log_linear",
]
