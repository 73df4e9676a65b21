"""What a fleet's driver has been told and decides by that. Pure.

`known` changes with each event; it keeps the `roster` and the workers' reports
(`worker/crew/gathering/reports`). `reconciling` decides which jobs and orders follow, `restarts`
counts, `notes` has the texts of `FleetStatus.notes`.
"""
