"""Brokers side by side: Meetpoint's own, RabbitMQ's headers exchange, and NATS with our matcher in a client."""
