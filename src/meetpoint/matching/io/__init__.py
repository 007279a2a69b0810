"""Events and subscriptions from files, tables, frames and rows, and the rows that are rejected."""
