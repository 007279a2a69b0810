"""The clients of a broker: sessions, authorization, quotas, and the queries that the broker itself answers."""
