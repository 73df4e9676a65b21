"""Who is active right now: users send a heartbeat a minute, and count until 2 minutes of silence.

Three times: as a record processor (`processor`), as a fleet of them on Spark (`fleet`), and as a
Spark query (`query`).
"""
