"""The probes: each measures something, and judges what it saw by a pure function."""
