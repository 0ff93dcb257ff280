"""Stores on disk, for people: finding their files, reading them while a broker writes, showing and checking them."""
