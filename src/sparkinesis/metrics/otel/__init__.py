"""OpenTelemetry: metrics under the names of the KCL for Java, and spans.

`instruments` take the measurements of all workers, under names from the catalogue; `spans` open and
link spans.
"""
