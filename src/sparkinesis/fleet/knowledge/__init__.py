"""What the driver knows of its fleet, and what it decides by that. Pure."""
