"""Links to other brokers: who is dialled, when, and what waits for whom."""
