"""The Kinesis API over boto3: clients, retries, credentials, decoders, and errors with advice.

A call goes down this list, and its answer comes back: `client` has the request, and makes values of
the answer; `caller` measures each attempt, backs off by `retry`, and raises what `explain` says;
the folder `direct` signs and sends most calls, and leaves the others to botocore; the folder
`answers` guards and decodes. `operations` has the bounds and the decoder of each operation.

Beside them: `subscription` is SubscribeToShard's connection. `shared_calls` makes one call for many
threads, and has the service's clock for them; `stream_identity` distinguishes streams of one name.
`session` is botocore's, with `data_files` and `default_region`.
"""
