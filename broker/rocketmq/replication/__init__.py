"""A master and its slaves: who has which part of the commit log, and what a slave makes of the master's."""
