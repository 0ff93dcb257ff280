"""Commands that speak of the program itself."""
