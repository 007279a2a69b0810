"""What nodes agree on: which homes there are and who hosts them, replicas, the schema, settings that change as one."""
