"""Golden files: bytes on the wire, records on disk and runs of the simulator, which a rename leaves as they are."""
