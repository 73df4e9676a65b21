"""Metrics as CloudWatch keeps them: statistic sets with the KCL's names, sent in the background.

`names` translates from the catalogue; `publisher` gathers measurements as `statistic_set`s, keeps
the `pending` ones and publishes; `options` are common to both ways. `emf` writes lines;
`worker/reporting/cloudwatch` calls PutMetricData.
"""
