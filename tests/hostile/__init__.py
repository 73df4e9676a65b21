"""Invalid input: any of it gives right data or one clear error.

Bytes, offsets, options, lease rows, texts, sizes, and 10,000 shards.
"""
