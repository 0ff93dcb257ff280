"""The files of a store: rows of equal size, index files, and the mark of the last flush."""
