"""Commands on the records of a stream."""
