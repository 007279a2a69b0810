"""`stream` and `deliver`: events that keep coming, matched batch by batch, each batch exactly once."""
