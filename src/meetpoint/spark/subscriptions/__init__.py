"""`Subscriptions`: a table of filters, compiled by all workers into a store of versions."""
