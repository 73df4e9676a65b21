"""The commands that run an application of the user's, and the one that writes a first one.

`sparkinesis run`: `run` comes first; `loading` finds the application by its name, `log_lines` is
its log, `user_errors` shows what the user's code raised, `reloading` starts it again when a file
changes. `fleet/own_session` is its fleet on Spark. `init` writes the files that `first_application`
composes; `kclpy` runs the program of a properties file.
"""
