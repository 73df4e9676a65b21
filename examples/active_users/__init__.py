"""Who is active right now: users send a heartbeat a minute, and count until 2 minutes of silence.

Twice: as a record processor (`processor`), and as a Spark query (`query`).
"""
