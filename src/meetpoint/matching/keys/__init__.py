"""Meet keys of conjunctions and events, and the statistics by which a conjunction's key is chosen."""
