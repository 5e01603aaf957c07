"""Writers that end without closing, as in a process that is killed."""


def leave_open(writer):
    """Makes a writer write nothing more when it is deleted: what it did not flush is lost."""
    if (closing := getattr(writer, '_closing', None)) is not None:
        closing.finish()
    for each in (writer, getattr(writer, '_writer', None)):
        if each is not None:
            each.process_id = None
