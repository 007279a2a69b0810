"""`meetpoint pipeline`: the stages of the data pipeline on Spark, as commands."""
