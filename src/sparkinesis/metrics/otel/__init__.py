"""OpenTelemetry: metrics under the names of the KCL for Java, and spans."""
