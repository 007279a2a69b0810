"""A home: its subscriptions, its outbox, a queue for each consumer, and the records that they survive by.

Imports `runtime`, and `cluster.replication`, which writes its records to two disks.
"""
