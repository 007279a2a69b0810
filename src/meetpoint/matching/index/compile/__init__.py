"""Compilation of subscriptions: from normal forms to rank form, and from rank form to the buckets of a segment."""
