"""Commands on brokers: run them, ask them, publish to them, subscribe at them."""
