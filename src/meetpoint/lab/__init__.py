"""The lab: tools that study the product and are not part of it.

`sim` runs networks in virtual time and judges them, `workloads` draws filters and events from a seed, `experiments`
measures the papers' claims, `printed` holds their algorithms as printed, `bench` compares with other systems, and
`demo` is a guided tour. The product never imports the lab; `meetpoint.cli.app` loads its commands when they are asked
for.
"""
