"""The batches of user records that a record processor is given.

`batch` is what ``process_records`` gets; `page_rows` unpacks a page into the form that is asked
for, objects (`user_record`) or columns.
"""
