"""What can be wrong with a cluster, and what to do about each: `delayline doctor`."""

from ops.doctor.examine import examine
from ops.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "examine"]
