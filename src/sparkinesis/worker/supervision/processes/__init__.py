"""Workers in processes of this machine.

`start` checks (`count`, `main_module`) and begins; `process_launcher` makes and ends the processes;
`worker_process` runs in one, and ends with its `channel`.
"""
