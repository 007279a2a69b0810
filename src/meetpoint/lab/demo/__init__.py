"""The story that `meetpoint demo` tells, act by act."""
