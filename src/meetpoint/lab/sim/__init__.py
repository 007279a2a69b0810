"""The simulator: a whole network in one process, in virtual time, from one seed, with faults and with judges."""

from meetpoint.lab.sim.faults import PLANS, Fault, FaultError, FaultPlan, read_plan
from meetpoint.lab.sim.judge import RunReport
from meetpoint.lab.sim.scenario import Network, Timing

__all__ = ["PLANS", "Fault", "FaultError", "FaultPlan", "Network", "RunReport", "Timing", "read_plan"]
