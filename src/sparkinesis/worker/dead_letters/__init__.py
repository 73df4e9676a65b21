"""Dead letters: targets for records that cannot be processed, their files, putting them back."""
