"""The HTTP server: one endpoint for Kinesis (HTTP/1.1, HTTP/2) and for DynamoDB and STS (moto)."""
