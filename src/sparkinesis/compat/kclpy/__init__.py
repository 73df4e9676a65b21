"""The modules of ``amazon_kclpy`` that a record processor imports, without the Java daemon.

    from sparkinesis.compat.kclpy import kcl
    from sparkinesis.compat.kclpy.v3 import processor

The names are those of amazon_kclpy 2.x and 3.x; docs/kclpy.md lists the differences. `kcl` runs a
processor and calls it; `messages` are its arguments, and the errors that it catches. `v2` and `v3`
are the two interfaces.

`properties` reads a properties file and its values; `translation` makes an application of them,
with `worker_keys` for the options that several keys make together.
"""
