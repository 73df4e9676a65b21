"""What runs an application: alerts, a dashboard and IAM policies, Docker and Kubernetes.

`rules`, `dashboard`, `alarms` and `iam` are the tables of which ``python -m deploy`` writes the
files in prometheus/, grafana/, cloudwatch/ and iam/; `queries` checks names of metrics.
tests/deploy holds that what they name exists. Only metrics that people look at first have a panel
or an alert.
"""
