"""Workers in processes of this machine, and the supervisor that starts and ends them.

`start` checks (`count`, `main_module`), `supervisor` acts by its `roster`; `worker_process` runs in
the process and ends with its `channel`.
"""
