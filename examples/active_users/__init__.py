"""Active users: users send a heartbeat every minute, and are active until 2 minutes of silence.

There are three versions: a record processor (`processor`), a fleet of record processors on Spark
(`fleet`), and a Spark query (`query`).
"""
