"""Requests and responses as bytes: JSON, CBOR and event streams; request types and validation."""
