"""The KPL's aggregated records: packing, unpacking, and the hash-range filter."""
