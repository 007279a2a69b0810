"""Placement of subscriptions under keys, for all schemes that do so.

`ownership` says which home answers for a key, at every moment at most one; `entries` keeps what is stored under keys in
step with subscriptions; `dissemination` brings events to keys, and from there to homes. `base` is a scheme but for what
it stores and where its events go.
"""
