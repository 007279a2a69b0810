"""The base of every part of a node: inputs, effects, messages, records, ids, timers. Imports nothing of the node."""
