"""What a user writes to process records, in its different ways, and the calls of it.

`processor` is the class, `functions` are the other ways, `named` finds one by name. `user_calls`
calls them, on an `event_loop` if they are coroutines, and `user_methods` refuses a call that has
not done its work; `call_threads` are for calls at the same time.
"""
