"""What every part of a node stands on: inputs, effects, messages, records, ids, timers. Imports nothing of the node."""
