"""The simulator: a whole network in one process, in virtual time, from one seed, with faults and with judges."""

from meetpoint.lab.sim.faults.plans import PLANS, Fault, FaultError, Plan, read_plan
from meetpoint.lab.sim.judge.report import Report
from meetpoint.lab.sim.scenario import Network, Timing

__all__ = ["PLANS", "Fault", "FaultError", "Network", "Plan", "Report", "Timing", "read_plan"]
