"""Fleets in which one worker, the leader, assigns the leases, as in KCL 3.x."""
