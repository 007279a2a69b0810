"""Models of the schemes that run without the simulator, on the schemes' own code: rings, lists, cubes, region trees."""
