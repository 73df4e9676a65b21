"""Which requests the server takes: not those of web pages, and only so many bytes at a time.

`guard` refuses by the headers, `bodies` bounds what is held.
"""
