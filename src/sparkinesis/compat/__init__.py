"""The programming interfaces of other Kinesis libraries, implemented on record processors.

`kclpy` has the names of amazon_kclpy.
"""
