"""The acts of `meetpoint demo`."""
