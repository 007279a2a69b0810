"""What an operator sees of a broker: metrics, logs, health, traces of events, and how the network looks from here."""
