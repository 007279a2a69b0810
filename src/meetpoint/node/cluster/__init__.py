"""Agreement between nodes: which homes there are and who hosts them, replicas, the schema, settings changed as one."""
