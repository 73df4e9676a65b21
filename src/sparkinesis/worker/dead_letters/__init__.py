"""Dead letters: targets for records that cannot be processed, their files, putting them back.

`targets` are the user's choice; `stored` makes the files of a directory, lists them, and puts back.
"""
