"""The fleet: workers hosted by Spark executors, and the driver's handle on them."""
