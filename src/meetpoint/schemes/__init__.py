"""Schemes: how events find the subscriptions that match them."""
