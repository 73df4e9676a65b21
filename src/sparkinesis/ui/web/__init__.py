"""The web server of the page, and which requests it takes."""
