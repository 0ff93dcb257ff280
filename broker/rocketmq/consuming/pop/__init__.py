"""POP: messages that are handed out for a while, and come again unless they are acknowledged."""
