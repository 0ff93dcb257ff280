"""The thin shell over trio: it moves bytes and keeps time, and decides nothing."""
