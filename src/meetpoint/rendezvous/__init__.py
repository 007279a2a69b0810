"""Where subscriptions and events meet: who answers for a key, how entries get there, how events do. For all schemes
that place subscriptions under keys.
"""
