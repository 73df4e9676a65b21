"""The Kinesis API over boto3: clients, retries, credentials, decoders, and errors with advice."""
