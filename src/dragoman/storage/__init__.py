"""Files on disk: the user's folders, private files, the last listing of each server, and large results."""
