"""Metrics as CloudWatch keeps them: statistic sets with the KCL's names, sent in the background.

`data` translates from the catalogue; `publisher` gathers measurements, keeps those that CloudWatch
did not take, and publishes; `publishing_options` are common to both ways. `emf` writes lines;
`worker/reporting/cloudwatch` calls PutMetricData.
"""
