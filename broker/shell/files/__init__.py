"""Files: mapped, appended to or written as a whole, in folders, with locks."""
