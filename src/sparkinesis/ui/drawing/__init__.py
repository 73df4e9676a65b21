"""What browsers show: the page with its charts and tables, made with Bokeh.

`page` is the whole, of `charts` and `tables`; the folder ``static`` has its style.
"""
