"""What the leader of several workers knows of them by their reports. Pure."""
