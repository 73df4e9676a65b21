"""Reads and decodes the service's answers: pages of records, and the events of subscriptions."""
