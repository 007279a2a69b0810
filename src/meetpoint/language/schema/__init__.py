"""Schemas: attributes with their types and bounds; schemas from YAML and from events."""
