"""Metrics as CloudWatch keeps them: statistic sets with the KCL's names, sent in the background."""
