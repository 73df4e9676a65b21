"""OpenTelemetry: metrics under the names of the KCL for Java, and spans.

`names` translates from the catalogue, `instruments` take the measurements of all workers, `spans`
open and link spans.
"""
