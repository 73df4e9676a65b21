"""What a processor written for ``amazon_kclpy`` imports, without Java and its daemon.

    from sparkinesis.compat.kclpy import kcl
    from sparkinesis.compat.kclpy.v3 import processor

The names are those of amazon_kclpy 2.x and 3.x; docs/kclpy.md says what differs.
"""
