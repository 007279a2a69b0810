"""The contract between clients and brokers: requests, outcomes, ids, limits, messages, frames and the handshake.

Clients, the gateway, Spark and the node import it; it imports only the language.
"""
