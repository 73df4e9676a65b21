"""Enhanced fan-out: registered consumers, and cursors over subscriptions."""
