"""The archive that `bmqctl bundle` writes for somebody who helps: what goes into it, and what is struck out."""
