"""`format("meetpoint")`: a network of brokers as a source and a sink of Spark."""
