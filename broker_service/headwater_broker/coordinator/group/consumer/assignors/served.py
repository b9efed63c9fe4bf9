"""The assignors that the broker serves, by name (`group.consumer.assignors`). Pure."""

from headwater_broker.coordinator.group.consumer.assignors.range import assign_range
from headwater_broker.coordinator.group.consumer.assignors.spec import Assignor
from headwater_broker.coordinator.group.consumer.assignors.uniform import assign_uniform

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By the name that a member may ask for; the first is the default."""
DEFAULT_ASSIGNOR = "uniform"
