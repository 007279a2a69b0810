"""Clients of a broker: sessions, what each may ask and how much, and the questions that the broker itself answers."""
