"""Queues: a stream's records one by one, received, acknowledged and delivered again by the service.

`address` says which queue, and where. `client` makes the calls on one queue, and `explain` their
errors. `finding` finds a queue by its name or ARN, or makes it.
"""
