"""Output of commands: files, tables for people, standard streams and progress."""
