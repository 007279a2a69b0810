"""The sans-IO node: a broker's logic, apart from any network, clock or disk.

`Node.handle` takes one input and returns effects; a driver (`meetpoint.broker`, or the simulator) carries them out. All
parts stand on `runtime`; `home` has a broker's subscriptions and events, `cluster` what nodes agree on. Overlays and
schemes plug in by the interfaces in `overlay` and `scheme`. Imports the matcher and the language only.
"""
