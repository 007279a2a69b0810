"""Fault injection: plans of faults, when each comes, and disks that fail."""
