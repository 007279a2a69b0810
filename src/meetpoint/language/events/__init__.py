"""Events as Python objects, JSON, MessagePack and Arrow."""
