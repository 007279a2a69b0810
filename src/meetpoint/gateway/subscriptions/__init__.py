"""Durable subscriptions over HTTP: the REST resource, and webhooks to its sinks."""
