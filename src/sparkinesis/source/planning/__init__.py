"""Planning of micro-batches on the driver: probing shards and deciding where a batch ends."""
