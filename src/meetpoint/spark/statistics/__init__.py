"""`measure`: counts of values, keys and matches, made by Spark."""
