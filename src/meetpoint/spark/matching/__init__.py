"""`match` and `backtest`: the three strategies, and the choice between them."""
