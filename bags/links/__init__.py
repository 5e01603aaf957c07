"""Links: records that are byte ranges of other files, the files that they are in, and which may be read."""
