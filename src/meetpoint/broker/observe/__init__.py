"""The broker as its operator sees it: metrics, logs, refusals and traces of events."""
