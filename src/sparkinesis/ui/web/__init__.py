"""The web server of the page, and which requests it takes.

`server` is Bokeh's, behind `guard`.
"""
