"""The commands that run an application of the user's, and the one that writes a first one.

`sparkinesis run`: `run` finds the application by its name, shows what the user's code raised, and
starts again when a file changes; `log_lines` is its log.
`fleet/running` is its fleet on Spark. `init` writes a first application; `kclpy` runs the
program of a properties file.
"""
