"""What browsers show: the page with its charts and tables, made with Bokeh."""
