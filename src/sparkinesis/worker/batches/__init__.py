"""The batches of user records that a record processor is given."""
