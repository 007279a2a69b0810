"""Links to other brokers: dialling them, and the messages that wait for them."""
