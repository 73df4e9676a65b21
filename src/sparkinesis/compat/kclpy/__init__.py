"""The modules of ``amazon_kclpy`` that a record processor imports, without the Java daemon.

    from sparkinesis.compat.kclpy import kcl
    from sparkinesis.compat.kclpy.v3 import processor

The names are those of amazon_kclpy 2.x and 3.x; docs/kclpy.md lists the differences.
"""
