"""Links: records that are byte ranges of other files, the linked files, and the permission to read them."""
