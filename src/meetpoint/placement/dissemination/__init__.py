"""How an event reaches the owners of its keys, and then the homes of the subscriptions that it matches."""
