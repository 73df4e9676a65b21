"""Dead letters: targets for records that cannot be processed, their files, putting them back.

`targets` are the user's choice; `file` is a letter in a directory, `stored` lists and puts back.
"""
