"""Whoever wishes a broker ill: frames from a seed, random, changed and invented, and a broker that is watched."""
