"""Meet keys: which keys a conjunction and an event have, and the statistics by which a conjunction's key is chosen."""
