"""The start of a batch, before any record is read.

`batch_start` fixes positions: deleted streams, lost shards. `skip_older_than` jumps to a bound,
`application_position` begins where a KCL application has come to.
"""
