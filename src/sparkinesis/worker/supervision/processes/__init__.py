"""Workers in processes of this machine.

`start` checks what it can, and begins; `process_launcher` makes and ends the processes;
`worker_process` runs in one, and ends with the pipe to its supervisor.
"""
