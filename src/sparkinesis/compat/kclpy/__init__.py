"""The modules of ``amazon_kclpy`` that a record processor imports, without the Java daemon.

    from sparkinesis.compat.kclpy import kcl
    from sparkinesis.compat.kclpy.v3 import processor

The names are those of amazon_kclpy 2.x and 3.x; docs/kclpy.md lists the differences. `kcl` runs a
processor, `adapter` calls it; `messages` are its arguments, `checkpoint_error` is what it catches.
`v2` and `v3` are the two interfaces.

A properties file is read by `properties`, its values by `property_values`; `settings` makes an
application of them, with `worker_keys` for the options that several keys make together.
"""
