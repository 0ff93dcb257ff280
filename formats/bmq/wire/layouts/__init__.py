"""Declarations of events, read at run time: the modules that read and write events are compiled."""
