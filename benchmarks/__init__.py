"""What sparkinesis measures about itself: `make bench`."""
