"""What is measured, and how measurements reach the systems that keep them."""
