"""The papers' experiments and ours: cells of parameters and a seed, run by the simulator or a model, and judged.

`catalog.EXPERIMENTS` has them all; `grid` runs their cells, `report` draws and judges what came.
"""
