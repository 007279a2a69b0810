"""Overlays: how nodes find each other and route a key."""
