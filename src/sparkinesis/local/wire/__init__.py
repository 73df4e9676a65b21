"""The HTTP server: one endpoint for Kinesis (HTTP/1.1, HTTP/2) and for DynamoDB and STS (moto).

`server` starts all. A connection passes `protocol_detector`, then `http1` or `http2`, then `http`,
which serves Kinesis; `answer` is what it returns, also in CloudWatch's CBOR; `push` has the
responses that wait, SubscribeToShard's among them. Calls of other services pass `other_services`,
with their faults, to `dynamodb`, moto in a process of its own, which it corrects; `partiql`
executes the statements that moto does wrongly.
"""
