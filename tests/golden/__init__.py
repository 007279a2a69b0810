"""What must not change when the code does: bytes on the wire, records on disk, whole runs of the simulator."""
