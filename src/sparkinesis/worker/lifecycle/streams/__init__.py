"""The streams that a worker reads: found, opened, left and, if several, kept apart.

`open_stream` is what consumers need of a stream, for one or several; `opening` opens. Several:
`stream_config` is given by the user, `stream_question` asks for the streams, `several_streams`
opens and leaves them by what is `tracked` of each, for all threads to see, and `former_leases`
removes leases. `background` makes calls that may block, and reports a problem that lasts once.
"""
