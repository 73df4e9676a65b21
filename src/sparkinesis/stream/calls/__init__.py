"""The Kinesis API over boto3: clients, retries, credentials, decoders, and errors with advice.

`client` has the calls. Each is made by a `caller`, with this process's client of the service, which
measures each attempt, backs off by `retry`, and raises what `explain` says. `subscription` is
SubscribeToShard's connection. `shared_calls` makes one call for many threads, and has the service's
clock for them; `stream_identity` distinguishes streams of one name.

Below: `session` (botocore's, with `data_files`, `default_region`, `credential_errors`) and the
folder `direct`, which sends most calls without botocore; `answers` guards and decodes.
"""
