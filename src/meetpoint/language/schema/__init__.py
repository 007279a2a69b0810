"""Schemas: attributes and their types, their YAML form, and their inference from events."""
