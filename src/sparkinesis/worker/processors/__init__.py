"""What a user writes to process records, in its different ways, and the calls of it.

`processor` is the class, `function_processors` are the other ways. `user_calls` calls them, in
threads for calls at the same time, on an `event_loop` if they are coroutines, and refuses a call
that has not done its work.
"""
