"""A broker as its operator sees it: metrics, logs, health, traces of events, and how the network looks from here."""
