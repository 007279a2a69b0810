"""The lab: what studies the product and is not part of it.

`sim` runs networks in virtual time and judges them, `workloads` draws filters and events from a seed, `experiments`
measures what the papers claim, `printed` holds their algorithms as printed, `bench` compares with other systems, and
`demo` tells a story. The product never imports the lab; `meetpoint.cli.app` loads its commands when they are asked for.
"""
