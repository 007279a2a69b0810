"""Events as Python's values, JSON, MessagePack and Arrow."""
